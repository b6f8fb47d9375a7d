"""What checksums cost: a model folder of 3 GB loaded with and without verification of its weights.

The folder holds a GPT of 24 layers and width 1,600 with random float32 weights. Each load has a process of its own, in
turn; the files are in the system's cache for all. Seconds until the model is there, and until it gave the logits of
one token, so that what is only mapped is read too; imports are not counted.

    PYTHONPATH=src python benchmarks/verifying.py --device cpu
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from headway import checksums
from headway.folder import read_model, text_card, weights_of, with_tokenizers, write_model
from headway.models.gpt import GPT, GPTConfig
from headway.text.tokenizer import TextOptions, Tokenizer

CONFIG = GPTConfig(layers=24, width=1600, heads=25, max_length=256)


def make(folder: Path) -> None:
    options = TextOptions(kind="char", min_count=1)
    tokenizer = Tokenizer.train(["what follows is noise"], options)
    torch.manual_seed(0)
    card = text_card("gpt", CONFIG, [len(tokenizer)], options)
    write_model(folder, weights_of(GPT(CONFIG, len(tokenizer))), card, with_tokenizers(card, tokenizer))


def child(folder: str, verified: bool, device: str) -> None:
    torch.set_num_threads(2)
    where = torch.device(device)
    torch.zeros(1, device=where)
    checksums.enabled = verified
    start = time.perf_counter()
    model = read_model(folder, where).model
    loaded = time.perf_counter() - start
    with torch.inference_mode():
        float(model.logits(torch.zeros(1, 1, dtype=torch.long, device=where))[0].sum())
    print(json.dumps({"load_s": loaded, "first_logits_s": time.perf_counter() - start}))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "VERIFIED"), help="for this script's own use")
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1] == "yes", options.device)
        return
    runs: dict[str, list[dict[str, float]]] = {"yes": [], "no": []}
    with tempfile.TemporaryDirectory() as place:
        make(Path(place) / "model")
        files = [path for path in (Path(place) / "model").iterdir() if path.is_file()]
        for path in files:
            path.read_bytes()  # so that it is in the cache for whoever comes first
        for _ in range(options.repeats or 7):
            for verified in runs:
                command = [sys.executable, __file__, "--child", str(Path(place) / "model"), verified]
                done = subprocess.run(
                    [*command, "--device", options.device], capture_output=True, text=True, check=True
                )
                runs[verified].append(json.loads(done.stdout.splitlines()[-1]))
        size = sum(path.stat().st_size for path in files)
    rows: list[dict[str, Any]] = [
        {"verified": verified, **{key: round(median([run[key] for run in found]), 3) for key in found[0]}}
        for verified, found in runs.items()
    ]
    ratios = {f"ratio_of_{key}": round(rows[0][key] / rows[1][key], 3) for key in ("load_s", "first_logits_s")}
    write(f"verifying-{options.device}", options.device, rows, options.out, gigabytes=round(size / 1e9, 2), **ratios)


if __name__ == "__main__":
    main()
