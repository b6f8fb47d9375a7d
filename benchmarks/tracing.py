"""What looking inside costs, and what it costs those who do not look.

Traced: GPT of the 124M shape reads 512 tokens, all attention weights kept and cut into a trace, beside its plain
forward pass; one process, repeats interleaved, medians.

Untraced: with `--before FOLDER` (an older headway: the folder that holds its `headway` package), each of two processes
has one headway and does the same work in turns: the same forward pass, one-token steps, beam search. On a GPU the
forward pass is compiled and in bfloat16.

    PYTHONPATH=src python benchmarks/tracing.py --device cpu
    git archive REVISION src | tar x -C OLD && PYTHONPATH=src python benchmarks/tracing.py --before OLD/src
"""

from __future__ import annotations

from measure import arguments, interleaved, median, seconds, write

# isort: split
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import headway
from headway.compiling import compiled
from headway.generate.offline import search_all
from headway.generate.search import Search
from headway.generate.stepper import stepper_for
from headway.models.gpt import GPT, SIZES
from headway.models.transformer import TINY, Transformer

VOCABULARY, TOKENS, STEPS = 50_257, 512, 64


def gpt(device: str) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(0)
    model = GPT(replace(SIZES["124M"], max_length=1024), VOCABULARY).to(device).eval()
    return model, torch.randint(VOCABULARY, (1, TOKENS), device=device)


def traced(device: str, repeats: int) -> list[dict[str, Any]]:
    model, ids_BT = gpt(device)

    @torch.no_grad()
    def looked_at(**choice: Any) -> None:
        with headway.trace(model, **choice) as t:
            model(ids_BT)
        t.row()

    works: dict[str, Callable[[], Any]] = {
        "plain": torch.no_grad()(lambda: model(ids_BT)),
        "all weights": lambda: looked_at(tensors="weights"),
        "two heads of one layer": lambda: looked_at(tensors="weights", layers=[5], heads=[0, 3]),
        "everything": looked_at,
    }
    times = interleaved(works, device, 2, repeats)
    medians = {name: median(taken) for name, taken in times.items()}
    return [
        {"work": "forward", "kept": name, "ms": round(1e3 * taken, 1), "of_plain": round(taken / medians["plain"], 3)}
        for name, taken in medians.items()
    ]


def untraced(device: str) -> dict[str, Callable[[], Any]]:
    """Work for nobody who looks: by whichever headway this process has."""
    model, ids_BT = gpt(device)
    if device == "cuda":
        model = model.bfloat16()
    forward = compiled(lambda ids: model(ids)[0]) if device == "cuda" else lambda ids: model(ids)[0]
    small = GPT(SIZES["char"], 64).to(device).eval()
    translator = Transformer(TINY, 1000, 1000).to(device).eval()
    sources = [torch.randint(4, 1000, (12,)).tolist() for _ in range(8)]
    place = torch.device(device)
    stepper = stepper_for(translator, place)

    def steps() -> None:
        state = small.start(None, 1, place, room=STEPS)
        for _ in range(STEPS):
            small(torch.ones(1, 1, dtype=torch.long, device=device), state)

    def search() -> None:
        search_all(translator, sources, Search(beam=4, max_extra=8), limit=40, device=place, stepper=stepper)

    return {"forward": lambda: forward(ids_BT), f"{STEPS} steps": steps, "search": search}


def serve(device: str) -> None:
    """A process that does one piece of work for every line that it reads, and says how long it took."""
    with torch.no_grad():
        works = untraced(device)
        for work in works.values():
            for _ in range(3):
                work()
        print(Path(headway.__file__).parents[1], flush=True)
        for line in sys.stdin:
            print(seconds(works[line.strip()], device), flush=True)


def compared(before: str, device: str, repeats: int) -> list[dict[str, Any]]:
    """The same work by two headways, in turns."""
    places = {"before": Path(before).resolve(), "now": Path(headway.__file__).resolve().parents[1]}
    command = [sys.executable, __file__, "--serve", "--device", device]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    servers = {
        name: subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(place)}, **pipes)
        for name, place in places.items()
    }
    try:
        for name, server in servers.items():
            said = Path(server.stdout.readline().strip()).resolve()
            if said != places[name]:
                raise SystemExit(f"'{name}' runs the headway in {said}, not that in {places[name]}")
        rows = []
        for work in ("forward", f"{STEPS} steps", "search"):
            times: dict[str, list[float]] = {name: [] for name in servers}
            for turn in range(repeats):
                for name in list(servers)[:: 1 if turn % 2 else -1]:
                    print(work, file=servers[name].stdin, flush=True)
                    times[name].append(float(servers[name].stdout.readline()))
            ratios = [now / then for now, then in zip(times["now"], times["before"], strict=True)]
            rows.append(
                {"work": work, "kept": "nothing", "ms": round(1e3 * median(times["now"]), 2),
                 "ms_before": round(1e3 * median(times["before"]), 2), "of_before": round(median(ratios), 3)}
            )  # fmt: skip
        return rows
    finally:
        for server in servers.values():
            server.stdin.close()
            server.wait()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--before", help="the folder of an older headway package, to compare untraced work with")
    parser.add_argument("--serve", action="store_true", help="for the script itself: work on request")
    given = parser.parse_args()
    if given.serve:
        serve(given.device)
        return
    rows = traced(given.device, given.repeats or 7)
    if given.before:
        rows += compared(given.before, given.device, (given.repeats or 7) * 3)
    write(f"tracing-{given.device}", given.device, rows, given.out)


if __name__ == "__main__":
    main()
