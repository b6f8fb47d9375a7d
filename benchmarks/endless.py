"""A text that is longer than anything in training: what each of its tokens costs, and what has to be remembered.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/endless.py --device cuda --parallel 3

Three decoders with rotary positions, trained alike on windows of `--length` tokens: each token sees all earlier ones,
the last `--window`, or the last and the first four. Then each reads a novel that it has not seen in a few streams, far
beyond the length of its training: nats per token by place, bytes of the state, and steps a second at the end.
"""

from __future__ import annotations

from measure import arguments, seconds, write

# isort: split
import gzip
import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import trained
from side_by_side import side_by_side, training_options

from headway.evaluate.perplexity import judging
from headway.tasks.loading import load

STREAMS, STEPS, AT_ONCE = 8, 64, 512


def ways(options: Namespace) -> dict[str, tuple[str, ...]]:
    near = ("model.pattern=sinks", f"model.pattern.window={options.window}")
    return {
        "all earlier tokens": ("model.pattern=earlier",),
        "window": (*near, "model.pattern.sinks=0"),
        "window and sinks": (*near, "model.pattern.sinks=4"),
    }


def training(way: str, options: Namespace) -> Any:
    common = [
        f"data.train={options.runs / 'novels'}", f"model.max_length={options.length}",
        f"engine.steps={options.steps}", f"engine.device={options.device}", *options.settings, *ways(options)[way],
    ]  # fmt: skip
    return trained("endless", way.replace(" ", "-"), options.runs, common)


def read(way: str, options: Namespace) -> dict[str, Any]:
    """What each token of the streams costs, a part at a time; then steps from there."""
    loaded: Any = load(options.runs / way.replace(" ", "-"), options.device, verb="score")
    model, device = loaded.model, torch.device(options.device)
    text = gzip.decompress(options.novels[-1].read_bytes()).decode("utf-8")
    ids = np.array(loaded.tokenizer.encode(text))
    length = min(len(ids) // STREAMS, options.most)
    ids_RT = torch.from_numpy(ids[: STREAMS * length].reshape(STREAMS, length)).to(device)
    state, parts = model.start(None, STREAMS, device), list[torch.Tensor]()
    with judging(model), torch.inference_mode():
        for at in range(0, length - 1, AT_ONCE):
            logp_RT, state = model.scored(ids_RT[:, at : at + AT_ONCE + 1], state)
            parts.append(logp_RT[:, 1:])
        nats_T = -torch.cat(parts, 1).double().mean(0).cpu()
        held = sum(part.numel() * part.element_size() for part in state_tensors(state))
        last_R1 = ids_RT[:, -1:]

        def steps() -> None:
            nonlocal state
            for _ in range(STEPS):
                _, state = model.logits(last_R1, state)

        steps()
        rate = STREAMS * STEPS / seconds(steps, options.device)
    found: dict[str, Any] = {"who": way, "length": length, "bytes": held // STREAMS, "steps_per_second": round(rate, 1)}
    first, last = 0, options.length
    while first < len(nats_T):
        found[f"nats_{last}"] = round(float(nats_T[first:last].mean()), 4)
        first, last = last, 4 * last
    return found


def state_tensors(state: Any) -> list[torch.Tensor]:
    """Keys and values, whatever keeps them."""
    return [part for cache in state["caches"] for part in (getattr(cache, "kv_RHSK", ()) or cache.tensors)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--most", type=int, default=32_768, help="tokens of a stream")
    options = training_options(parser, "endless", seeds=1)
    options.novels = sorted((Path(os.environ.get("HEADWAY_DATA", "data")) / "novels/core").glob("*.txt.gz"))
    (options.runs / "novels").mkdir(exist_ok=True)
    for novel in options.novels[:-1]:
        shutil.copy(novel, options.runs / "novels")
    side_by_side(lambda way: training(way, options), list(ways(options)), options.parallel)
    rows = [read(way, options) for way in ways(options)]
    case = {"length": options.length, "window": options.window, "steps": options.steps, "streams": STREAMS}
    write("endless", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
