"""headway import, headway export"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.cli.options import MODEL, argument, check_model, option
from headway.errors import InputError, refuse

FORMS = ("hf", "ctranslate2", "onnx", "peft", "gguf", "arpa")
GGUF = ".gguf"
TORCH = (".pt", ".pth", ".safetensors")
NPZ = ".npz"
ARPA = (".arpa", ".arpa.gz", ".lm", ".lm.gz")
ENDINGS = "an ARPA file of n-grams ends in " + ", ".join(ARPA)


def export(
    model: str = MODEL,
    file: str = argument("DEST", "The folder to write; a file for GGUF (.gguf) and for n-grams (.arpa, .arpa.gz)."),
    form: str = option(
        None,
        "NAME",
        "hf, ctranslate2, onnx or peft (an adapter); a file's ending says gguf or arpa.",
        "--format",
    ),
    dtype: str = option(None, "NAME", "For ctranslate2: float32, float16, int8; for gguf: float16, q8_0, q4_0, …"),
) -> None:
    """Write a model in a form that other programs read: Hugging Face, CTranslate2, ONNX, GGUF, n-grams as ARPA."""
    check_model(model, "headway export MODEL DEST")
    if not form and not file.endswith((*ARPA, GGUF)):
        raise InputError(
            f"{file}: pass --format {', '.join(FORMS[:4])} for a folder; a GGUF file ends in .gguf, {ENDINGS}"
        )
    form = form or ("gguf" if file.endswith(GGUF) else "arpa")
    refuse(form not in FORMS, f"--format is {', '.join(FORMS)}, not {form}")
    if dtype not in (None, "float32") and form not in ("ctranslate2", "gguf"):
        raise InputError(f"--dtype is for --format ctranslate2 and gguf: {form} is written in float32")
    refuse(form == "gguf" and not file.endswith(GGUF), f"{file}: a GGUF file ends in .gguf")
    refuse(Path(file).exists(), f"{file} is there already: choose another name, or delete it first")
    print(f"written: {file}{_write(form, model, file, dtype)}")


def _write(form: str, model: str, dest: str, dtype: str | None) -> str:
    """Write the model; returns what there is to say of the result."""
    if form == "hf":
        from headway.hub.hf_export import export_hf

        return f" (model_type {export_hf(model, dest)})"
    if form == "peft":
        from headway.hub.adapter_export import export_adapter

        return f" ({export_adapter(model, dest)})"
    if form == "ctranslate2":
        from headway.hub.ctranslate2_export import export_ctranslate2

        export_ctranslate2(model, dest, dtype or "float32")
        return f" ({dtype or 'float32'})"
    if form == "gguf":
        from headway.hub.gguf_export import export_gguf

        return f" ({export_gguf(model, dest, dtype or 'float16')}, {dtype or 'float16'})"
    if form == "onnx":
        from headway.hub.onnx_export import export_onnx

        return f" ({', '.join(export_onnx(model, dest))})"
    from headway.hub.families.arpa import export_arpa

    _check_ending(dest)
    is_words = export_arpa(model, dest) == "word"
    return "" if is_words else f"; to read it back: headway import {dest} FOLDER --like {model}"


def take_in(
    file: str = argument(
        "SOURCE",
        "A Hugging Face folder, hf://owner/name[@revision], a .gguf file, weights of torch.nn.Transformer (.pt), "
        "n-grams (.arpa, .arpa.gz), or the .npz of the package g2p-en.",
    ),
    folder: str = argument("FOLDER", "The model folder to make of it."),
    like: str = option(None, "MODEL", "N-grams: a model with the same vocabulary, where that is not of words."),
    heads: int = option(None, "N", "Weights of torch.nn.Transformer: its heads, which the weights do not say.", min=1),
    settings: list[str] = option(
        [],
        "KEY=VALUE...",
        "The same, where it differs from torch's defaults: norm_first=true, activation=gelu, …",
        "--set",
    ),
) -> None:
    """Make a model folder of another program's model."""
    from headway.cli.place import is_taken

    refuse(is_taken(Path(folder)), f"{folder} is there already: choose another name, or delete it first")
    if file.startswith("hf://") or file.endswith((GGUF, *TORCH)) or Path(file).is_dir():
        from headway.hub.reading import import_foreign

        refuse(like is not None, "--like is for n-grams: a Hugging Face folder has a vocabulary of its own")
        import_foreign(file, folder, _call(heads, settings))
    elif file.endswith(NPZ):
        from headway.hub.families.g2p_en import import_g2p

        refuse(like is not None, "--like is for n-grams: the model of g2p-en has a vocabulary of its own")
        import_g2p(file, folder)
    else:
        refuse(heads or settings, "--heads and --set are for weights of torch.nn.Transformer")
        from headway.hub.families.arpa import import_arpa

        _check_ending(file)
        import_arpa(file, folder, like)
    print(f"model: {folder}")


def _call(heads: int | None, settings: list[str]) -> Any:
    """How the weights of a `torch.nn.Transformer` are called; None where nothing is said of it."""
    if heads is None and not settings:
        return None
    from headway.hub.torch_file import Call
    from headway.plain import change

    call = change(Call(), settings)
    return call if heads is None else replace(call, nhead=heads)


def _check_ending(file: str) -> None:
    refuse(not file.endswith(ARPA), f"{file} is of no known form: {ENDINGS}")
