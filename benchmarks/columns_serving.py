"""The tables of the server: under load, beside others, asked by other programs."""

from __future__ import annotations

from formats import Column, count, number, rate, tenths, times, tiny, two_digits
from recorded import Row

FIRST: list[Column] = [("p50_ttft_ms", "first token, ms: half", number), ("p99_ttft_ms", "99 %", number)]
NEXT: list[Column] = [("p50_itl_ms", "next token, ms: half", number), ("p99_itl_ms", "99 %", number)]
HTTP_SERVING: list[Column] = [
    ("who", "", str), ("requests", "requests", count), ("output_throughput", "tokens/s", rate),
    ("times_engine", "beside the engine", times), *FIRST, *NEXT,
]  # fmt: skip
AZURE: list[Column] = [
    ("who", "", str), ("offered", "requests/s sent", two_digits), ("request_throughput", "answered", two_digits),
    ("output_throughput", "tokens/s", rate), *FIRST, *NEXT,
]  # fmt: skip
SERVERS: list[Column] = [
    ("clients", "clients", count), ("who", "", str), ("output_throughput", "tokens/s", rate),
    ("times_peer", "beside the fastest other", times), *FIRST, *NEXT, ("same", "same texts", tenths),
]  # fmt: skip
STREAMS: list[Column] = [
    ("who", "", str), ("streams", "streams at once", count), ("ended", "ended", count),
    ("equal", "equal to the text alone", count), ("tokens", "tokens", count),
]  # fmt: skip
LM_EVAL: list[Column] = [
    ("texts", "texts", count), ("largest_difference", "largest difference, nats a text", tiny),
    ("lm-eval", "bits a byte by lm-eval", number), ("headway score", "by `headway score`", number),
]  # fmt: skip
GUIDELLM: list[Column] = [
    ("clients", "clients", count), ("requests", "requests", count), ("answered", "answered", count),
    ("output_throughput", "tokens/s", rate), FIRST[0], NEXT[0],
]  # fmt: skip
SCHEMATHESIS: list[Column] = [("requests", "requests drawn", count), ("faults", "faults", count)]
ASKED = {"lm-eval": LM_EVAL, "guidellm": GUIDELLM, "schemathesis": SCHEMATHESIS}


def asked(record: Row | None) -> list[tuple[str, list[Column], list[Row]]]:
    """What other programs found, a table for each."""
    found = []
    for row in record["rows"] if record else ():
        faults = {"faults": sum(row["faults"].values())} if "faults" in row else {}
        found.append((row["who"], ASKED[row["who"]], [row | row.get("bits_per_byte", {}) | faults]))
    return found
