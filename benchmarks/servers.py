"""headway's server beside others on this machine: the same model, the same requests, the same numbers.

The Llama of random weights of `http_serving.py`, weights and caches in float32, two threads each: headway and
`transformers serve` read one Hugging Face folder, llama.cpp a GGUF file of it. Texts as prompts, `--new` tokens each,
greedy, streamed, by so many clients, each of which sends its next request when the last is answered. Each repeat asks
every server the same new prompts, in turn, after one short text; those that are not asked are stopped meanwhile.
Medians by tokens a second. `same`: the share of all answers that are headway's to the letter.

    PYTHONPATH=src python benchmarks/servers.py --device cpu --python PYTHON

PYTHON: an interpreter that has transformers[serving] and xllamacpp, llama.cpp's own server in a package.
"""

from __future__ import annotations

from measure import arguments, versions, write

# isort: split
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from http_load import Body, Seen, figures, sent_by
from http_serving import CASES, generator

from headway.folder import text_card, weights_of, with_tokenizers, write_model
from headway.hub.gguf_export import export_gguf
from headway.hub.hf_export import export_hf
from headway.text.tokenizer import TextOptions

CLIENTS, THREADS, ROWS, CONTEXT = (1, 16, 64), 2, 64, 512
LLAMA_CPP = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.warmup = sys.argv[1], int(sys.argv[2]), True
rows, context, threads = map(int, sys.argv[3:6])
params.n_parallel, params.n_ctx, params.kv_unified = rows, rows * context, False
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
time.sleep(1 << 20)
"""


class Contestant(NamedTuple):
    """How a server is started, the name that it gives the model, and further fields of its requests."""

    words: list[str]
    model: str
    more: dict[str, Any]


def contestants(place: Path, python: str, ports: Sequence[int]) -> dict[str, Contestant]:
    folder, file = str(place / "llama"), str(place / "llama.gguf")
    numbers = list(map(str, (ROWS, CONTEXT, THREADS)))
    ours = [sys.executable, "-m", "headway", "serve", folder, "--rows", str(ROWS), "--threads", str(THREADS)]
    theirs = [str(Path(python).parent / "transformers"), "serve", folder, "--device", "cpu", "--dtype", "float32"]
    return {
        "headway": Contestant([*ours, "--port", str(ports[0])], "llama", {"ignore_eos": True}),
        "transformers serve": Contestant([*theirs, "--port", str(ports[1])], folder, {}),
        "transformers serve, continuous batching": Contestant(
            [*theirs, "--continuous-batching", "--port", str(ports[2])], folder, {}
        ),
        "llama.cpp": Contestant(
            [python, "-c", LLAMA_CPP, file, str(ports[3]), *numbers], "llama", {"ignore_eos": True}
        ),
    }  # fmt: skip


def written(place: Path) -> None:
    """The model as a Hugging Face folder and as a GGUF file."""
    case = CASES["cpu"]
    model = generator(case, "cpu")
    card = text_card(
        "llama", case["config"], [len(model.tokenizer)], TextOptions(size=len(model.tokenizer), exact=True)
    )
    write_model(place / "headway", weights_of(model.model), card, with_tokenizers(card, model.tokenizer))
    export_hf(place / "headway", place / "llama")
    export_gguf(place / "headway", place / "llama.gguf", "float32")


def free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def running(contestant: Contestant, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Started, and answering."""
    ours = contestant.words[0] == sys.executable
    outside = {name: value for name, value in os.environ.items() if ours or name != "PYTHONPATH"}
    outside |= {"OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(contestant.words, stdout=file, stderr=file, env=outside, start_new_session=True)
        try:
            for _ in range(240):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        break
                except OSError:
                    if process.poll() is not None:
                        raise SystemExit(log.read_text(errors="replace")[-2000:]) from None
                    time.sleep(0.5)
            else:
                raise SystemExit(f"{' '.join(contestant.words[:4])} does not answer: {log.read_text()[-2000:]}")
            yield process
        finally:
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def texts(count: int, seed: int, longest: int = 128) -> list[str]:
    """Of so many words of six letters, at least an eighth of them."""
    draw = np.random.default_rng((3, seed))
    return [
        " ".join("".join(map(chr, draw.integers(97, 123, 6))) for _ in range(draw.integers(longest // 8, longest + 1)))
        for _ in range(count)
    ]  # fmt: skip


def asked(contestant: Contestant, port: int, prompts: Sequence[str], new: int, clients: int) -> list[Seen]:
    shared: Body = {"model": contestant.model, "max_tokens": new, "temperature": 0} | contestant.more
    return sent_by(port, [shared | {"prompt": prompt} for prompt in prompts], clients)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the peers")
    parser.add_argument("--new", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--requests", type=int, default=64, help="of each row of the table")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--without", nargs="+", default=(), help="servers that are left out")
    options = parser.parse_args()
    if options.device != "cpu" or "headway" in options.without:
        parser.error("it measures headway's server and others on a CPU")
    repeats, rows = options.repeats or 3, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        place, ports = Path(folder), free_ports(4)
        written(place)
        every = contestants(place, options.python, ports)
        at = dict(zip(every, ports, strict=True))
        who = {name: one for name, one in every.items() if name not in options.without}
        processes = {}
        for name, one in who.items():
            processes[name] = servers.enter_context(running(one, at[name], place / f"{at[name]}.txt"))
            asked(one, at[name], texts(2, 0), 4, 2)  # warm
            os.killpg(processes[name].pid, signal.SIGSTOP)
        for clients in options.clients:
            many = options.requests if clients > 1 else max(4, options.requests // 16)
            found: dict[str, list[list[Seen]]] = {name: [] for name in who}
            for repeat in range(repeats):
                prompts = texts(many, 1000 * clients + repeat + 1)
                for name, one in who.items():
                    os.killpg(processes[name].pid, signal.SIGCONT)
                    asked(one, at[name], texts(1, 0), 4, 1)  # what it had in the caches of the cores is gone
                    found[name].append(asked(one, at[name], prompts, options.new, clients))
                    os.killpg(processes[name].pid, signal.SIGSTOP)
            rows += told(found, clients, many)
    case = {"new": options.new, "rows": ROWS, "threads": THREADS} | versions(
        options.python, ("transformers", "xllamacpp")
    )
    write(f"servers-{options.device}", options.device, rows, options.out, case=case)


def told(found: dict[str, list[list[Seen]]], clients: int, many: int) -> list[dict[str, Any]]:
    """A row for each server, beside the fastest of the others."""
    middle = {}
    for name, repeats in found.items():
        each = sorted(map(figures, repeats), key=lambda one: one["output_throughput"])
        middle[name] = each[len(each) // 2]
    peer = max(one["output_throughput"] for name, one in middle.items() if name != "headway")
    ours = [one.text for repeat in found["headway"] for one in repeat]
    rows = []
    for name, row in middle.items():
        theirs = [one.text for repeat in found[name] for one in repeat]
        same = sum(map(str.__eq__, ours, theirs)) / len(ours)
        row |= {"times_peer": round(row["output_throughput"] / peer, 2), "same": round(same, 3)}
        rows.append({"who": name, "clients": clients, "requests": many, **row})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
