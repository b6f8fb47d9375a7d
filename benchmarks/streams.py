"""A thousand streams at once: none is lost, and each has the text that `generate` gives for it alone.

The Llama of random weights of `http_serving.py`, in float64, so that what is computed beside a text cannot change its
last digits; half of the requests greedy, half drawn with seeds of their own, of different lengths.

    PYTHONPATH=src python benchmarks/streams.py --device cpu
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import time
from typing import Any

import torch
from http_load import Body, Seen, figures, sent_by
from http_serving import CASES, generator, serving
from servers import texts

from headway.generate.generator import Generator

LONGEST = 16  # words of a prompt


def asked(prompt: str, number: int) -> Body:
    """Even ones greedy, odd ones drawn."""
    shared: Body = {"model": "llama", "prompt": prompt, "max_tokens": 4 + number % 9, "seed": number}
    return shared | {"temperature": float(number % 2)}


def alone(model: Generator, body: Body) -> str:
    how: dict[str, Any] = {"max_new": body["max_tokens"], "temperature": body["temperature"], "seed": body["seed"]}
    return model.generate(body["prompt"], **how)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    options = parser.parse_args()
    case = CASES[options.device]
    model = generator(case | {"dtype": torch.float64}, options.device)
    bodies = [asked(prompt, number) for number, prompt in enumerate(texts(options.streams, 0, LONGEST))]
    with serving(model, case["rows"]) as port:
        began = time.perf_counter()
        seen = sent_by(port, bodies, len(bodies))
        seconds = time.perf_counter() - began
    wanted = [alone(model, body) for body in bodies]
    write(f"streams-{options.device}", options.device, told(seen, wanted), options.out,
          case={"streams": options.streams, "rows": case["rows"], "seconds": round(seconds, 1)})  # fmt: skip


def told(seen: list[Seen], wanted: list[str]) -> list[dict[str, Any]]:
    right = [one.text == text for one, text in zip(seen, wanted, strict=True)]
    return [
        {
            "who": who, "streams": len(right[first::2]), "ended": sum(one.tokens > 0 for one in seen[first::2]),
            "equal": sum(right[first::2]), "tokens": sum(one.tokens for one in seen[first::2]),
            "p99_ttft_ms": figures(seen[first::2])["p99_ttft_ms"],
        }
        for first, who in enumerate(("greedy", "seeded"))
    ]  # fmt: skip


if __name__ == "__main__":
    main()
