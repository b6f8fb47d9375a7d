"""The server under load: tokens a second through HTTP, streamed, beside the engine alone; times as clients see them.

A Llama of random weights, prompts of 32 to 256 tokens, `--new` tokens each, greedy. `engine`: all requests are given to
it at once. Then so many clients as the row says: each sends its next request when the last is answered (a closed loop),
from a process of their own. Fields are called as `vllm bench serve` calls them; milliseconds, over all requests.
`times_engine`: output tokens a second beside the engine's, which is measured anew before and after each, as machines
are not equally fast all the time; the round that is in the middle. Client and server share the cores of this machine.
With many clients the same once more where a stream is sent every step's token by itself (`--intervals`; the server's
`--stream-interval`, 0: the more streams, the more steps together). Draws `results/http-serving-DEVICE.svg` beside its
JSON.

    PYTHONPATH=src python benchmarks/http_serving.py --device cpu
"""

from __future__ import annotations

from measure import RESULTS, arguments, median, write

# isort: split
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from http_load import PERCENTILES, figures, sent_by
from panels import Panel, draw

from headway.generate.generator import Generator
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models.llama import Llama, LlamaConfig
from headway.openmp import rest
from headway.serve.api import Api, Limits
from headway.serve.running import bound, server
from headway.text.tokenizer import TextOptions, Tokenizer

CASES: dict[str, dict[str, Any]] = {
    "cpu": {"config": LlamaConfig(6, 384, 1024, 6, 6, max_length=512), "requests": 128, "rows": 64,
            "dtype": torch.float32},
    "cuda": {"config": LlamaConfig(16, 2048, 8192, 32, 8, max_length=1024), "requests": 512, "rows": 256,
             "dtype": torch.bfloat16},
}  # fmt: skip
CLIENTS, MANY = (1, 16, 64, 256), 64
INTERVALS = (0, 1)
SHORTEST, LONGEST, WORDS = 32, 256, 8000


def generator(case: dict[str, Any], device: str) -> Generator:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    lines = [" ".join("".join(map(chr, draw.integers(97, 123, 6))) for _ in range(8)) for _ in range(4000)]
    tokenizer = Tokenizer.train(lines, TextOptions(size=WORDS, exact=True))
    with torch.device(device):
        model = Llama(case["config"], WORDS).to(case["dtype"]).eval()
    found = Generator(model, tokenizer, context=case["config"].max_length, device=torch.device(device))
    found.name = "llama"
    assert len(tokenizer) == WORDS, "texts of fewer words than the model has"
    return found


def drawn(count: int, each: int, seed: int = 0) -> list[list[int]]:
    """Prompts of other tokens for each seed, and of the same lengths, which repeat after so many as `each`."""
    lengths = np.resize(np.random.default_rng(1).integers(SHORTEST, LONGEST + 1, each), count)
    draw = np.random.default_rng((1, seed))
    return [draw.integers(300, WORDS, length).tolist() for length in lengths]


def alone(model: Generator, prompts: list[list[int]], new: int, rows: int) -> float:
    """Tokens a second of the engine."""
    asked = [Request(ids, Sampling(temperature=0), new, frozenset()) for ids in prompts]
    start = time.perf_counter()
    how: dict[str, Any] = {"context": model.context, "device": model.device, "batch": rows, "stepper": model.stepper}
    found = generate_all(model.model, asked, **how)
    spent = time.perf_counter() - start
    rest()  # the server computes in a thread of its own
    return sum(len(one[0].ids) for one in found) / spent


def asked(ids: list[int], new: int) -> dict[str, Any]:
    return {"model": "llama", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True}


@contextmanager
def serving(model: Generator, rows: int, interval: int = 0) -> Iterator[int]:
    """The port of a server in this process."""
    api, listening = Api({"llama": model}, Limits(rows=rows, interval=interval)), bound(0, backlog=4096)
    running = server(api.asgi, 4096)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()
        api.close()


def spoken(interval: int) -> str:
    return f"{interval} steps together" if interval > 1 else "every step by itself"


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    each = [row for row in rows[1:] if not row["interval"]]
    counts = [row["clients"] for row in each]

    def line(key: str) -> list[tuple[float, float | None]]:
        return [(row["clients"], row[key]) for row in each]

    speeds = {
        "server": line("output_throughput"),
        "engine alone": [(at, rows[0]["output_throughput"]) for at in counts],
    }
    waits = {
        title: {("half of them" if part == 50 else f"{part} %"): line(f"p{part}_{name}_ms") for part in PERCENTILES}
        for title, name in (("ms to the first token", "ttft"), ("ms to the next token", "itl"))
    }
    panels = [Panel("tokens/s", speeds, "clients", counts)]
    draw([*panels, *(Panel(title, lines, "clients", counts, log_y=True) for title, lines in waits.items())], path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--new", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--requests", type=int, help="of each row of the table")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--intervals", type=int, nargs="+", default=INTERVALS)
    options = parser.parse_args()
    device, case = options.device, CASES[options.device]
    count, repeats = options.requests or case["requests"], options.repeats or 5
    model, prompts = generator(case, device), drawn(count, count)
    alone(model, prompts[:8], 8, case["rows"])  # warm
    rows, engine = list[dict[str, Any]](), list[float]()
    for interval in options.intervals:
        with serving(model, case["rows"], interval) as port:
            for clients in [some for some in options.clients if not interval or some >= MANY]:
                many = max(count, clients) if clients > 1 else max(4, count // 16)
                found = []
                engine.append(alone(model, prompts, options.new, case["rows"]))
                for repeat in range(repeats):  # prompts that the server has not seen: it would not read them again
                    bodies = [asked(ids, options.new) for ids in drawn(many, count, 1000 * clients + repeat + 1)]
                    row = figures(sent_by(port, bodies, clients))
                    engine.append(alone(model, prompts, options.new, case["rows"]))
                    beside = row["output_throughput"] / (sum(engine[-2:]) / 2)
                    found.append(row | {"times_engine": round(beside, 3)})
                found.sort(key=lambda one: one["times_engine"])
                each = [one["times_engine"] for one in found]
                who = f"{clients} clients" + (f", {spoken(interval)}" if interval else "")
                row = {"who": who, "clients": clients, "interval": interval, "requests": many, **found[repeats // 2]}
                rows.append(row | {"times_engine_each": each})
                print(rows[-1], flush=True)
    rows.insert(0, {"who": "engine", "requests": count, "output_throughput": round(median(engine), 1)})
    case_of = {"new": options.new, "rows": case["rows"], "threads": torch.get_num_threads()}
    write(f"http-serving-{device}", device, rows, options.out, case=case_of)
    picture(rows, Path(options.out or RESULTS) / f"http-serving-{device}.svg")


if __name__ == "__main__":
    main()
