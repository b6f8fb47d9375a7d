"""The server under the load of a real service: requests of Azure's trace of 2023 (conversations; prompts' and answers'
lengths, and when they came), through HTTP, streamed.

    PYTHONPATH=src HEADWAY_DATA=data python benchmarks/azure.py --device cpu --shrink 8

Words are random, answers as long as they were. First what the engine can do: all requests given to it at once. Then
they are sent when they came, which is in bursts, with the time stretched so that as many come as the given share of
that (`--shares`). A client does not wait for another's answer. Fields as in benchmarks/http_serving.py, where the model
is from too; `--shrink`: all lengths through this number, where the model or the machine is small.
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import csv
import lzma
import time
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from http_load import figures, sent_by
from http_serving import CASES, WORDS, asked, generator, serving

from headway.data.catalog import find
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling

FILE = "azure_llm_trace/conv.csv.xz"
SHARES = (0.25, 0.5, 0.75, 0.9)


class Came(NamedTuple):
    """seconds: after the first."""

    seconds: float
    prompt: int
    answer: int


def trace(file: Path, count: int, skip: int, shrink: int, most: int) -> list[Came]:
    """So many requests in a row; those that the model could not hold are cut."""
    with lzma.open(file, "rt") as lines:
        rows = list(csv.reader(lines))[1 + skip : 1 + skip + count]
    times = [datetime.fromisoformat(when[:26]) for when, _, _ in rows]
    found = []
    for when, (_, prompt, answer) in zip(times, rows, strict=True):
        new = min(max(1, int(answer) // shrink), most // 2)
        found.append(Came((when - times[0]).total_seconds(), min(max(1, int(prompt) // shrink), most - new), new))
    return found


def words(came: Came, number: int, seed: int) -> list[int]:
    return np.random.default_rng((2, seed, number)).integers(300, WORDS, came.prompt).tolist()


def at_once(model: Any, came: list[Came], rows: int) -> float:
    """Seconds of the engine for all of them."""
    requests = [
        Request(words(one, number, 0), Sampling(temperature=0), one.answer, frozenset())
        for number, one in enumerate(came)
    ]
    start = time.perf_counter()
    generate_all(
        model.model, requests, context=model.context, device=model.device, batch=rows, stepper=model.stepper
    )  # fmt: skip
    return time.perf_counter() - start


def measured(options: Namespace) -> None:
    device, case = options.device, CASES[options.device]
    model = generator(case, device)
    came = trace(find(FILE), options.requests, options.skip, options.shrink, model.context)
    at_once(model, came[:4], case["rows"])  # warm
    rate = len(came) / median([at_once(model, came, case["rows"]) for _ in range(options.repeats or 3)])
    natural = (len(came) - 1) / came[-1].seconds
    rows: list[dict[str, Any]] = [{"who": "engine, all at once", "request_throughput": round(rate, 3)}]
    with serving(model, case["rows"]) as port:
        for number, share in enumerate(options.shares, 1):
            bodies = [asked(words(one, at, number), one.answer) for at, one in enumerate(came)]
            times = [one.seconds * natural / (share * rate) for one in came]
            found = figures(sent_by(port, bodies, times=times))
            rows.append({"who": f"{share:.0%} of it", "requests": len(came), "offered": round(share * rate, 3)} | found)
            print(rows[-1], flush=True)
    case_of = {
        "requests": len(came), "shrink": options.shrink, "rows": case["rows"], "threads": torch.get_num_threads(),
        "prompt": round(float(np.mean([one.prompt for one in came])), 1),
        "answer": round(float(np.mean([one.answer for one in came])), 1),
    }  # fmt: skip
    write(f"azure-{device}", device, rows, options.out, case=case_of)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--skip", type=int, default=0, help="requests of the trace before the first")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    measured(parser.parse_args())


if __name__ == "__main__":
    main()
