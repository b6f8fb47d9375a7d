"""llama.cpp's own library, called through its C interface: `python llama_cpp.py FOLDER quantise IN OUT FTYPE`, or
`… logits FILE ID ID …`, which prints the logits behind the last id as JSON. A program of its own: a fault in the
library ends it, and not the tests.

Parameters are structures that grow with its versions. They are taken from the library, in more room than they need, and
handed back; only fields that stand first are changed.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any


class Room(ctypes.Structure):
    _fields_ = (("words", ctypes.c_int32 * 256),)


class Batch(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6))


def library(folder: Path) -> Any:
    every = [
        ctypes.CDLL(str(next(folder.glob(name))), mode=ctypes.RTLD_GLOBAL)
        for name in ("libggml-base*", "libggml.*", "libllama.v*")
    ]
    every[1].ggml_backend_load_all_from_path(str(folder).encode())
    return every[2]


def quantise(llama: Any, source: str, target: str, ftype: int) -> int:
    llama.llama_model_quantize_default_params.restype = Room
    params = llama.llama_model_quantize_default_params()
    params.words[0], params.words[1] = 1, ftype  # threads, the kind of file
    return int(llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)))


def logits(llama: Any, path: str, ids: list[int]) -> list[float]:
    for name, kind in (("llama_model_default_params", Room), ("llama_context_default_params", Room),
                       ("llama_model_load_from_file", ctypes.c_void_p), ("llama_init_from_model", ctypes.c_void_p),
                       ("llama_model_get_vocab", ctypes.c_void_p), ("llama_batch_get_one", Batch),
                       ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float))):  # fmt: skip
        getattr(llama, name).restype = kind
    model = ctypes.c_void_p(llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params()))
    context = ctypes.c_void_p(llama.llama_init_from_model(model, llama.llama_context_default_params()))
    size = llama.llama_vocab_n_tokens(ctypes.c_void_p(llama.llama_model_get_vocab(model)))
    kept = (ctypes.c_int32 * len(ids))(*ids)  # the batch has a pointer to it
    batch = llama.llama_batch_get_one(kept, len(ids))
    assert llama.llama_decode(context, batch) == 0
    return list(llama.llama_get_logits_ith(context, -1)[:size])


if __name__ == "__main__":
    folder, command, *rest = sys.argv[1:]
    opened = library(Path(folder))
    if command == "quantise":
        sys.exit(quantise(opened, rest[0], rest[1], int(rest[2])))
    print(json.dumps(logits(opened, rest[0], [int(i) for i in rest[1:]])))
