"""The server under load: tokens a second through HTTP, streamed, beside the engine alone; times as clients see them.

A Llama of random weights, prompts of 32 to 256 tokens, `--new` tokens each, greedy. `engine`: all requests are given to
it at once. Then so many clients as the row says: each sends its next request when the last is answered (a closed loop),
from a process of their own. Fields are called as `vllm bench serve` calls them; milliseconds, over all requests.
`times_engine`: output tokens a second beside the engine's. Client and server share the cores of this machine.

    PYTHONPATH=src python benchmarks/http_serving.py --device cpu
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from typing import Any

import numpy as np
import torch

from headway.generate.generator import Generator
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models.llama import Llama, LlamaConfig
from headway.serve.api import Api, Limits
from headway.serve.running import bound, server
from headway.text.tokenizer import TextOptions, Tokenizer

CASES: dict[str, dict[str, Any]] = {
    "cpu": {"config": LlamaConfig(6, 384, 1024, 6, 6, max_length=512), "requests": 128, "rows": 64,
            "clients": (1, 16, 64), "dtype": torch.float32},
    "cuda": {"config": LlamaConfig(16, 2048, 8192, 32, 8, max_length=1024), "requests": 512, "rows": 256,
             "clients": (1, 16, 64, 256), "dtype": torch.bfloat16},
}  # fmt: skip
SHORTEST, LONGEST, WORDS = 32, 256, 8000
PERCENTILES = (50, 90, 99)


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


def drawn(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng((1, seed))
    return [draw.integers(300, WORDS, draw.integers(SHORTEST, LONGEST + 1)).tolist() for _ in range(count)]


def alone(model: Generator, prompts: list[list[int]], new: int, rows: int) -> float:
    """Tokens a second of the engine."""
    asked = [Request(ids, Sampling(temperature=0), new, frozenset()) for ids in prompts]
    start = time.perf_counter()
    how: dict[str, Any] = {"context": model.context, "device": model.device, "batch": rows, "stepper": model.stepper}
    found = generate_all(model.model, asked, **how)
    return sum(len(one[0].ids) for one in found) / (time.perf_counter() - start)


async def one_request(port: int, ids: list[int], new: int) -> tuple[float, list[float], int]:
    """When it was sent, when each part came, and how many tokens there were."""
    ask = {"model": "llama", "prompt": ids, "max_tokens": new, "temperature": 0, "stream": True, "ignore_eos": True}
    body = json.dumps(ask | {"stream_options": {"include_usage": True}}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    sent = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    came, tokens, done = list[float](), 0, False
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            part = json.loads(line[6:])
            came += [time.perf_counter()] if part["choices"] else []
            tokens = part.get("usage", {}).get("completion_tokens", tokens)
        done = done or line.startswith(b"data: [DONE]")
    writer.close()
    assert done, "a stream was cut off"
    return sent, came, tokens


def load(port: int, clients: int, count: int, new: int, seed: int) -> None:
    """So many clients; prints what each request saw."""
    waiting = iter(drawn(count, seed))

    async def client() -> list[tuple[float, list[float], int]]:
        return [await one_request(port, ids, new) for ids in waiting]

    async def every() -> list[tuple[float, list[float], int]]:
        found = await asyncio.gather(*(client() for _ in range(clients)))
        return [one for some in found for one in some]

    print(json.dumps(asyncio.run(every())))


def told(seen: list[tuple[float, list[float], int]]) -> dict[str, Any]:
    seconds = max(came[-1] for _, came, _ in seen) - min(sent for sent, _, _ in seen)
    first = [came[0] - sent for sent, came, _ in seen]
    after = [(came[-1] - came[0]) / (tokens - 1) for _, came, tokens in seen if tokens > 1]
    between = np.concatenate([np.diff(came) for _, came, _ in seen])
    row: dict[str, Any] = {
        "request_throughput": round(len(seen) / seconds, 3),
        "output_throughput": round(sum(tokens for _, _, tokens in seen) / seconds, 1),
    }
    for name, values in {"ttft": first, "tpot": after, "itl": between}.items():
        row[f"mean_{name}_ms"] = round(float(np.mean(values)) * 1e3, 2)
        for part, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
            row[f"p{part}_{name}_ms"] = round(float(value) * 1e3, 2)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--new", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--requests", type=int, help="of each row of the table")
    parser.add_argument("--load", type=int, nargs=5, help="PORT CLIENTS REQUESTS NEW SEED: be the clients")
    options = parser.parse_args()
    if options.load:
        load(*options.load)
    else:
        measured(options)


def measured(options: Namespace) -> None:
    device, case = options.device, CASES[options.device]
    count, repeats = options.requests or case["requests"], options.repeats or 3
    model, prompts = generator(case, device), drawn(count)
    alone(model, prompts[:8], 8, case["rows"])  # warm
    engine = sorted(alone(model, prompts, options.new, case["rows"]) for _ in range(repeats))[repeats // 2]
    rows: list[dict[str, Any]] = [{"who": "engine", "requests": count, "output_throughput": round(engine, 1)}]
    api, listening = Api({"llama": model}, Limits(rows=case["rows"])), bound(0, backlog=4096)
    running = server(api.asgi, 4096)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    port = listening.getsockname()[1]
    for clients in case["clients"]:
        asked = count if clients > 1 else max(4, count // 16)
        found = []
        for repeat in range(repeats):  # prompts that the server has not seen: it would not read them again
            words = map(str, (port, clients, asked, options.new, 1000 * clients + repeat + 1))
            with tempfile.TemporaryFile() as out:
                subprocess.run([sys.executable, __file__, "--load", *words], check=True, stdout=out)
                out.seek(0)
                found.append(told(json.loads(out.read())))
        row = sorted(found, key=lambda one: one["output_throughput"])[repeats // 2]
        times = round(row["output_throughput"] / engine, 3)
        rows.append({"who": f"{clients} clients", "requests": asked, **row, "times_engine": times})
        print(rows[-1], flush=True)
    running.should_exit = True
    thread.join()
    api.close()
    case_of = {"new": options.new, "rows": case["rows"], "threads": torch.get_num_threads()}
    write(f"http-serving-{device}", device, rows, options.out, case=case_of)


if __name__ == "__main__":
    main()
