"""Loading a Hugging Face folder of a 1.5-billion-parameter shape: seconds and peak memory, beside transformers.

A folder with random weights of the shape of Qwen2-1.5B is written in bfloat16, in shards of a gigabyte. Each contestant
loads it in a process of its own, in turn, and computes the logits of one token, so that what is only mapped is read
too. Given are the seconds of both, imports not counted; the peak of the process's own memory (`anonymous_mib`, what
nobody can take back) and of all that is resident (`resident_mib`, which counts pages of the files themselves). The
files are in the system's cache for both. `weights_mib` is what the weights take in the precision that was asked for.

    PYTHONPATH=src python benchmarks/loading.py --device cpu
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from headway.hub.families.llama import QWEN2
from headway.models.llama import Llama

FACTS = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 1536,
    "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "tie_word_embeddings": True, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    "dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0, "use_sliding_window": False,
}  # fmt: skip
SHARD = 2**30
MIB = 2**20


def make(folder: Path) -> int:
    """The folder; returns how many parameters it holds."""
    config, _ = QWEN2.model_in(FACTS)
    with torch.device("meta"):
        model = Llama(config, FACTS["vocab_size"])
    ours = dict(model.named_parameters())
    noise = torch.randn(2**24, generator=torch.Generator().manual_seed(0)).mul_(0.02).to(torch.bfloat16)
    shard: dict[str, torch.Tensor] = {}
    places: dict[str, str] = {}
    size = 0

    def put() -> None:
        name = f"model-{len(set(places.values())) + 1:05}.safetensors"
        save_file(shard, folder / name, {"format": "pt"})
        places.update(dict.fromkeys(shard, name))
        shard.clear()

    for entry in QWEN2.table(ours, config, (FACTS["vocab_size"],)).entries:
        for name, part in entry.views(ours[entry.ours]):
            if size + 2 * part.numel() > SHARD and shard:
                put()
                size = 0
            shard[name] = noise.repeat(-(-part.numel() // len(noise)))[: part.numel()].view(part.shape).clone()
            size += 2 * part.numel()
    put()  # safetensors puts a file's tensors in the order of their names, as in any such folder
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps(FACTS))
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    return sum(weight.numel() for weight in ours.values())


class Watch(threading.Thread):
    """The greatest memory of this process, looked at two hundred times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"RssAnon": 0, "VmRSS": 0}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.005):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.most:
                    self.most[name] = max(self.most[name], int(value.split()[0]) // 1024)


def load_headway(folder: str, device: torch.device, dtype: torch.dtype) -> Any:
    from headway.folder import read_model

    return read_model(folder, device, dtype).model


def load_transformers(folder: str, device: torch.device, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=None).to(device).eval()


CONTESTANTS = {"headway": load_headway, "transformers": load_transformers}


def child(name: str, folder: str, device: str, dtype: str) -> None:
    torch.set_num_threads(2)
    load = CONTESTANTS[name]
    if name == "transformers":
        from transformers import AutoModelForCausalLM  # noqa: F401  (imports are not counted)
        from transformers.models.qwen2 import modeling_qwen2  # noqa: F401
    else:
        import headway.hub.reading  # noqa: F401
    where = torch.device(device)
    torch.zeros(1, device=where)
    watch = Watch()
    before = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // MIB
    watch.start()
    start = time.perf_counter()
    model = load(folder, where, getattr(torch, dtype))
    loaded = time.perf_counter() - start
    with torch.inference_mode():
        model(torch.zeros(1, 1, dtype=torch.long, device=where))
    if device == "cuda":
        torch.cuda.synchronize()
    ready = time.perf_counter() - start
    time.sleep(0.05)
    watch.over.set()
    gpu = {"gpu_mib": torch.cuda.max_memory_allocated() // MIB} if device == "cuda" else {}
    print(json.dumps({
        "load_s": round(loaded, 2), "first_logits_s": round(ready, 2), "before_mib": before,
        "anonymous_mib": watch.most["RssAnon"], "resident_mib": watch.most["VmRSS"], **gpu,
    }))  # fmt: skip


def measured(name: str, folder: Path, device: str, dtype: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", name, str(folder), "--device", device, "--dtype", dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FOLDER"), help="for this script's own use")
    parser.add_argument("--dtype", help="for this script's own use")
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.device, options.dtype)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        parameters = make(Path(place))
        for file in Path(place).iterdir():
            file.read_bytes()  # so that it is in the cache for whoever comes first
        for dtype in ("bfloat16", "float32"):
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
            for _ in range(options.repeats or 3):
                for name in CONTESTANTS:
                    runs[name].append(measured(name, Path(place), options.device, dtype))
            weights = parameters * getattr(torch, dtype).itemsize // MIB
            for name, found in runs.items():
                middle = {key: median([run[key] for run in found]) for key in found[0]}
                rows.append({"contestant": name, "dtype": dtype, "weights_mib": weights, **middle})
    import transformers  # noqa: F401  (its version stands in the record)

    write(f"loading-{options.device}", options.device, rows, options.out, parameters=parameters)


if __name__ == "__main__":
    main()
