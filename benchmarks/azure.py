"""The server under the load of a real service: requests of Azure's trace of 2023 (conversations; prompts' and answers'
lengths, and when they came), through HTTP, streamed.

    PYTHONPATH=src HEADWAY_DATA=data python benchmarks/azure.py --device cpu --shrink 8

Words are random, answers as long as they were. First what the engine can do: all requests given to it at once. Then
they are sent when they came, which is in bursts, with the time stretched so that as many come as the given share of
that (`--shares`). A client does not wait for another's answer. Fields as in benchmarks/http_serving.py, where the model
is from too; `--shrink`: all lengths through this number, where the model or the machine is small.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import asyncio
import csv
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from http_serving import CASES, WORDS, generator, one_request, told

from headway.data.catalog import find
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.serve.api import Api, Limits
from headway.serve.running import bound, server

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


def at_once(model: Any, asked: list[Came], rows: int) -> float:
    """Seconds of the engine for all of them."""
    requests = [
        Request(words(one, number, 0), Sampling(temperature=0), one.answer, frozenset())
        for number, one in enumerate(asked)
    ]
    start = time.perf_counter()
    generate_all(
        model.model, requests, context=model.context, device=model.device, batch=rows, stepper=model.stepper
    )  # fmt: skip
    return time.perf_counter() - start


def send(port: int, asked: list[Came], stretch: float, seed: int) -> None:
    """Every request at its time; prints what each saw."""

    async def one(number: int, came: Came) -> Any:
        await asyncio.sleep(came.seconds * stretch)
        return await one_request(port, words(came, number, seed), came.answer)

    async def every() -> Any:
        return await asyncio.gather(*(one(number, came) for number, came in enumerate(asked)))

    print(json.dumps(asyncio.run(every())))


def measured(options: Namespace) -> None:
    device, case = options.device, CASES[options.device]
    model = generator(case, device)
    asked = trace(find(FILE), options.requests, options.skip, options.shrink, model.context)
    at_once(model, asked[:4], case["rows"])  # warm
    rate = len(asked) / at_once(model, asked, case["rows"])
    natural = (len(asked) - 1) / asked[-1].seconds
    api, listening = Api({"llama": model}, Limits(rows=case["rows"])), bound(0, backlog=4096)
    running = server(api.asgi, 4096)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    rows: list[dict[str, Any]] = [{"who": "engine, all at once", "request_throughput": round(rate, 3)}]
    for number, share in enumerate(options.shares, 1):
        again = [*sys.argv[1:], "--send", str(listening.getsockname()[1]), str(natural / (share * rate)), str(number)]
        with tempfile.TemporaryFile() as out:
            subprocess.run([sys.executable, __file__, *again], check=True, stdout=out)
            out.seek(0)
            found = told(json.loads(out.read()))
        rows.append({"who": f"{share:.0%} of it", "requests": len(asked), "offered": round(share * rate, 3)} | found)
        print(rows[-1], flush=True)
    running.should_exit = True
    thread.join()
    api.close()
    case_of = {
        "requests": len(asked), "shrink": options.shrink, "rows": case["rows"], "threads": torch.get_num_threads(),
        "prompt": round(float(np.mean([one.prompt for one in asked])), 1),
        "answer": round(float(np.mean([one.answer for one in asked])), 1),
    }  # fmt: skip
    write(f"azure-{device}", device, rows, options.out, case=case_of)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--skip", type=int, default=0, help="requests of the trace before the first")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--send", nargs=3, metavar=("PORT", "STRETCH", "SEED"), help="be the clients")
    options = parser.parse_args()
    if options.send:
        port, stretch, seed = options.send
        asked = trace(find(FILE), options.requests, options.skip, options.shrink,
                      CASES[options.device]["config"].max_length)  # fmt: skip
        send(int(port), asked, float(stretch), int(seed))
    else:
        measured(options)


if __name__ == "__main__":
    main()
