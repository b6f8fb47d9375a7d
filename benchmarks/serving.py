"""Many prompts at once: tokens a second of headway's engine, beside transformers' continuous batching.

512 prompts of 32 to 512 tokens, 128 new tokens each, greedy, without a stop, on a Llama of 1.1 billion weights
(16 layers, width 2,048, 32 heads that share 8 keys, inner 8,192, vocabulary 32,000) in bfloat16, its weights drawn at
random. Repeats are interleaved; medians. Beside the rate: how long the prompts alone take (one new token each), and
what the bytes that must be read would take at the machine's own bandwidth, measured beside: all weights at every step,
and the keys and values of every row once a token (`floor_seconds`).

    PYTHONPATH=src python benchmarks/serving.py --device cuda
    PYTHONPATH=src python benchmarks/serving.py --device cuda --before OTHER/src    and an older tree, interleaved
    PYTHONPATH=src python benchmarks/serving.py --device cuda --batch 64 --profile  where the time goes
    PYTHONPATH=src python benchmarks/serving.py --device cpu --small                does it run
"""

from __future__ import annotations

from measure import arguments, interleaved, median, seconds, write

# isort: split
import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from headway.generate.sampling import Sampling
from headway.models.llama import Llama, LlamaConfig

CONFIG = LlamaConfig(16, 2048, 8192, 32, 8, max_length=1024)
SMALL = replace(CONFIG, layers=2, width=64, inner=128, heads=4, shared_heads=2)
VOCABULARY, PROMPTS, SHORTEST, LONGEST, NEW = 32_000, 512, 32, 512, 128

Work = Callable[[int], int]  # new tokens of each prompt → tokens written


def prompts(count: int, vocabulary: int) -> list[list[int]]:
    """Lengths spread evenly, in a random order."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(count, generator=generator)
    lengths = (SHORTEST + order * (LONGEST - SHORTEST) // max(1, count - 1)).tolist()
    return [torch.randint(3, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def model_of(config: LlamaConfig, vocabulary: int, device: str) -> Llama:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        return Llama(config, vocabulary).to(dtype).eval()


def headway(model: Llama, texts: list[list[int]], batch: int | None, speed: Any = "auto") -> Work:
    device = next(model.parameters()).device
    try:
        from headway.generate.offline import generate_all
        from headway.generate.request import Request
        from headway.generate.stepper import stepper_for
    except ImportError:  # an older tree
        from headway.generate.stream import Prompt as Request  # type: ignore[import-not-found,no-redef]
        from headway.generate.stream_offline import generate_all  # type: ignore[import-not-found,no-redef]
        from headway.generate.stream_stepper import (  # type: ignore[import-not-found,no-redef]
            stream_stepper_for as stepper_for,
        )
    stepper = stepper_for(model, device, speed)

    def work(new: int) -> int:
        asked = [Request(ids, Sampling(0), max_new=new, stops=frozenset()) for ids in texts]
        found = generate_all(
            model, asked, context=model.config.max_length, device=device, stepper=stepper, batch=batch
        )  # fmt: skip
        return sum(len(samples[0].ids) for samples in found)

    return work


def transformers(config: LlamaConfig, vocabulary: int, texts: list[list[int]], device: str) -> Work | None:
    """A Llama of the same shape; its speed does not depend on the weights."""
    try:
        from transformers import GenerationConfig, LlamaForCausalLM
        from transformers import LlamaConfig as Settings
    except ImportError:
        return None
    if not hasattr(LlamaForCausalLM, "generate_batch") or device == "cpu":
        return None
    settings = Settings(
        vocab_size=vocabulary, hidden_size=config.width, intermediate_size=config.inner,
        num_hidden_layers=config.layers, num_attention_heads=config.heads, num_key_value_heads=config.shared_heads,
        max_position_embeddings=config.max_length,
    )  # fmt: skip
    with torch.device(device):
        peer: Any = LlamaForCausalLM(settings).to(torch.bfloat16).eval()
    peer.set_attn_implementation("paged|sdpa")

    def work(new: int) -> int:
        how = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
        with torch.no_grad():
            found = peer.generate_batch(inputs=texts, generation_config=how, progress_bar=False)
        return sum(len(one.generated_tokens) for one in found.values())

    return work


class Before:
    """The engine of another source tree, in a process of its own that waits for numbers of new tokens."""

    def __init__(self, source: str, options: list[str]) -> None:
        command = [sys.executable, __file__, "--serve", *options]
        environment = os.environ | {"PYTHONPATH": source}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )  # fmt: skip

    def __call__(self, new: int) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{new}\n")
        self.process.stdin.flush()
        return int(json.loads(self.process.stdout.readline()))


def serve(work: Work) -> None:
    for line in sys.stdin:
        print(json.dumps(work(int(line))), flush=True)


def bandwidth(device: str) -> float:
    """Bytes a second of a copy."""
    x = torch.empty(2**30 if device == "cuda" else 2**26, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / median(interleaved({"": lambda: y.copy_(x)}, device, 3, 10)[""])


def must_read(model: Llama, texts: list[list[int]], new: int, rows: int) -> dict[str, float]:
    """Gigabytes: the weights at each step of each batch of rows, and keys and values of a row once a token."""
    config = model.config
    weights = sum(weight.nbytes for name, weight in model.named_parameters() if "embed" not in name)
    head_width = config.head_width or config.width // config.heads
    token = 2 * config.layers * (config.shared_heads or config.heads) * head_width * next(model.parameters()).itemsize
    cached = sum(len(ids) * new + new * (new - 1) // 2 for ids in texts) * token
    return {"weights": weights * new * -(-len(texts) // rows) / 1e9, "caches": cached / 1e9}


def profile(work: Work, new: int, device: str) -> None:
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    work(new)
    with torch.profiler.profile(activities=kinds) as seen:
        work(new)
    key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(seen.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--small", action="store_true", help="a tiny model and few prompts")
    parser.add_argument("--batch", type=int, help="most rows at a time")
    parser.add_argument("--prompts", type=int, help=f"how many (default: {PROMPTS})")
    parser.add_argument("--new", type=int, help=f"new tokens of each (default: {NEW})")
    parser.add_argument("--before", metavar="SRC", help="the src folder of an older tree, timed beside")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--profile", action="store_true", help="no measurement: name the kernels")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device, small = options.device, options.small
    config, vocabulary = (SMALL, 500) if small else (CONFIG, VOCABULARY)
    count, new = options.prompts or (12 if small else PROMPTS), options.new or (8 if small else NEW)
    texts, model = prompts(count, vocabulary), model_of(config, vocabulary, device)
    mine = headway(model, texts, options.batch)
    if options.serve:
        serve(mine)
        return
    if options.profile:
        profile(mine, new, device)
        return
    works: dict[str, Work] = {"headway": mine}
    if options.before:
        passed = [word for word in sys.argv[1:] if word not in ("--before", options.before)]
        works["headway before"] = Before(options.before, passed)
    if not options.alone and (peer := transformers(config, vocabulary, texts, device)):
        works["transformers continuous batching"] = peer
    for name, work in works.items():
        assert work(new) == count * new, f"{name} wrote another number of tokens"
    repeats = options.repeats or 3
    times = interleaved({name: lambda work=work: work(new) for name, work in works.items()}, device, 0, repeats)
    mine(1)
    reading = median([seconds(lambda: mine(1), device) for _ in range(repeats)])
    rate, bytes_read = bandwidth(device), must_read(model, texts, new, min(options.batch or count, count))
    first = median(times["headway"])
    rows = [
        {
            "who": name,
            "tokens_per_second": round(count * new / median(values), 1),
            "seconds": round(median(values), 3),
            "times_headway": round(first / median(values), 3),
        }
        for name, values in times.items()
    ]
    rows[0] |= {
        "seconds_for_the_prompts": round(reading, 3),
        "milliseconds_a_step": round((first - reading) / max(1, new - 1) * 1e3, 2),
        "gigabytes_read": {name: round(value, 1) for name, value in bytes_read.items()},
        "floor_seconds": round(sum(bytes_read.values()) * 1e9 / rate, 3),
    }
    case = {
        "prompts": count, "tokens": sum(map(len, texts)), "new": new, "batch": options.batch,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "gigabytes_per_second": round(rate / 1e9, 1),
    }  # fmt: skip
    write(f"serving-{device}", device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
