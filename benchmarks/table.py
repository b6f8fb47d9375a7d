"""The tables of the README and the docs, made from benchmarks/results/*.json.

A page says where: what stands between `<!-- results:begin -->` and `<!-- results:end -->` is replaced by the
tables of the front page, between `<!-- results:begin beam -->` and its end by that one. A result that is not
there leaves its rows out.

    python benchmarks/table.py            rewrite the pages
    python benchmarks/table.py --check    only say whether they are up to date (exit 1 if not)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- results:begin ?([\w ]*) ?-->\n).*?(<!-- results:end -->)", re.DOTALL)
NOTHING = "*Nothing measured yet: `benchmarks/README.md` says how.*"

Row = dict[str, Any]
Column = tuple[str, str, Callable[[Any], str]]  # key of the row, heading, how a value is written


def _times(value: Any) -> str:
    return f"{value:.2f} ×"


def _bleu(value: Any) -> str:
    return f"{value:.2f}"


def _count(value: Any) -> str:
    return f"{value:,.0f}"


def _number(value: Any) -> str:
    return f"{value:g}" if value else "0"


def _share(value: Any) -> str:
    return f"{100 * value:.0f} %"


def _recipe(value: Any) -> str:
    return f"`{value}`"


SCORES: list[Column] = [
    ("recipe", "recipe", _recipe),
    ("test_bleu", "test BLEU", _bleu),
    ("mean_test_bleu", "mean over seeds", _bleu),
    ("validation_bleu", "validation BLEU", _bleu),
    ("published", "published", str),
    ("seconds", "training, s", _count),
    ("machine", "machine", str),
    ("date", "date", str),
    ("note", "note", str),
]
TRAINING: list[Column] = [
    ("who", "training", str),
    ("target_tokens_per_second", "target tokens/s", _count),
    ("times_torch_nn", "beside torch.nn.Transformer", _times),
]
BEAM: list[Column] = [
    ("who", "beam search", str),
    ("sentences_per_second", "sentences/s", _count),
    ("times_marian", "beside Marian", _times),
]
DECODING: list[Column] = [
    ("who", "decoding", str),
    ("size", "size", str),
    ("rows", "rows", _count),
    ("dtype", "numbers", str),
    ("tokens_per_second", "tokens/s", _count),
    ("times_transformers", "beside transformers", _times),
]
GPT: list[Column] = [
    ("who", "training", str),
    ("size", "size", str),
    ("tokens_per_second", "tokens/s", _count),
    ("times_nanoGPT", "beside nanoGPT", _times),
    ("loss_apart_percent", "loss apart, %", _bleu),
]

SAFETY: list[Column] = [
    ("who", "training", str),
    ("milliseconds", "ms a step", _bleu),
    ("slower_percent", "slower by, %", _bleu),
]

CORPUS: list[Column] = [
    ("phase", "phase", str),
    ("seconds", "seconds", _count),
    ("pairs_per_second", "pairs/s", _count),
    ("resident_mib", "resident, MiB", _count),
]
ENCODING: list[Column] = [
    ("who", "encoding alone", str),
    ("pairs_per_second", "pairs/s", _count),
    ("times_encode_batch", "beside encode_batch", _times),
]
COUNTING: list[Column] = [
    ("smoothing", "smoothing", str),
    ("order", "n", _count),
    ("test", "test perplexity", _bleu),
    ("validation", "validation", _bleu),
    ("published", "published", str),
    ("ngrams", "n-grams", _count),
    ("seconds", "counting, s", _bleu),
]
PAIRS: list[Column] = [
    ("who", "recipe", _recipe),
    *(
        (f"{kind}, {figure}", f"{kind}, {figure}", write)
        for kind in ("near", "far", "mirrored")
        for figure, write in (("share", _share), ("nats", _bleu))
    ),
]


def table(columns: list[Column], rows: list[Row]) -> str:
    """Markdown; a column that no row has a value for is left out, numbers stand on the right."""
    used = [column for column in columns if any(row.get(column[0]) is not None for row in rows)]
    right = [any(isinstance(row.get(key), int | float) for row in rows) for key, _, _ in used]
    head = [[heading for _, heading, _ in used], ["---:" if number else "---" for number in right]]
    body = [[write(row[key]) if row.get(key) is not None else "" for key, _, write in used] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*head, *body])


def _read(results: Path, name: str) -> Row | None:
    path = results / f"{name}.json"
    if not path.is_file():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return record if isinstance(record, dict) else {"rows": record}


def _facts(record: Row) -> str:
    """One line on what was measured where: the case, the machine, the versions, the day."""
    case = [f"{key.replace('_', ' ')} {_plain(value)}" for key, value in record.get("case", {}).items()]
    versions = [f"{name} {value}" for name, value in record.get("versions", {}).items() if name != "python"]
    return f"{record['machine']}: {', '.join(case)} ({', '.join([*versions, record['date']])})."


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def scores(results: Path) -> list[str]:
    record = _read(results, "scores")
    return [table(SCORES, record["rows"])] if record and record["rows"] else []


def speed(results: Path, name: str, columns: list[Column]) -> list[str]:
    """For each machine that has a result: its facts, then its table."""
    records = [_read(results, f"{name}-{device}") for device in ("cuda", "cpu")]
    return [block for record in records if record for block in (_facts(record), table(columns, record["rows"]))]


def safety(results: Path) -> list[str]:
    record = _read(results, "safety-cuda")
    if record is None:
        return []
    disk = record["disk"]
    said = (
        f"{disk['checkpoint_megabytes']:,} MB each, {disk['writing_seconds_each']} s to write beside the training; "
        f"{disk['left_out']} of {disk['due']} left out, since the last was still being written; the disk takes "
        f"{disk['disk_megabytes_per_second']:,} MB/s."
    )
    return [_facts(record), table(SAFETY, record["rows"]), said]


def corpus(results: Path) -> list[str]:
    record = _read(results, "corpus-cpu")
    if record is None:
        return []
    phases = [row for row in record["rows"] if "phase" in row]
    rates = [row for row in record["rows"] if "who" in row]
    return [_facts(record), table(CORPUS, phases), table(ENCODING, rates)]


def counting(results: Path) -> list[str]:
    record = _read(results, "counting-cpu")
    if record is None:
        return []
    pace = record["pace"]
    said = (
        f"{pace['tokens']:,} words drawn by Zipf's law, n = 3: {pace['seconds']} s of one core, "
        f"{pace['ngrams']:,} n-grams."
    )
    return [_facts(record), table(COUNTING, record["rows"]), said]


def deck_d(results: Path, name: str) -> list[str]:
    """One of deck D's tables; of that with skips, as in the deck, only the columns that have something."""
    record = _read(results, "deck-d")
    if record is None:
        return []
    found = next(row for row in record["rows"] if row["name"] == name)
    if "rows" in found:
        keys = ["beginning", "mask", "down", "please"]
        return [table([(key, key, str if key in keys[:2] else _number) for key in keys], found["rows"])]
    rows = [dict(zip(found["words"], p, strict=True)) for p in found["p"]]
    for history, row in zip(found["histories"], rows, strict=True):
        row["behind"] = history
    used = [word for word in found["words"] if name != "with skips" or any(row[word] for row in rows)]
    return [table([("behind", "", str), *((word, word, _number) for word in used)], rows)]


TABLES: dict[str, Callable[[Path], list[str]]] = {
    "scores": scores,
    "training": lambda results: speed(results, "training", TRAINING),
    "beam": lambda results: speed(results, "beam", BEAM),
    "decoding": lambda results: speed(results, "decoding", DECODING),
    "gpt": lambda results: speed(results, "gpt", GPT),
    "safety": safety,
    "corpus": corpus,
    "pairs": lambda results: speed(results, "pairs", PAIRS),
    "counting": counting,
    "show_me": lambda results: deck_d(results, "first order, show me"),
    "first_order": lambda results: deck_d(results, "first order, battery"),
    "second_order": lambda results: deck_d(results, "second order, battery"),
    "skips": lambda results: deck_d(results, "with skips"),
    "votes": lambda results: deck_d(results, "votes"),
}

FRONT = ["scores", "training", "beam"]  # of a page that names none


def rewritten(page: str, results: Path = RESULTS) -> str:
    """The page with every block between its markers made anew."""

    def fill(found: re.Match[str]) -> str:
        names = found[2].split() or FRONT
        unknown = [name for name in names if name not in TABLES]
        if unknown:
            raise SystemExit(f"there is no table '{unknown[0]}'; there is: {', '.join(TABLES)}")
        blocks = [block for name in names for block in TABLES[name](results)]
        return f"{found[1]}\n" + "\n\n".join(blocks or [NOTHING]) + f"\n\n{found[3]}"

    return BLOCK.sub(fill, page)


def pages(root: Path = ROOT) -> list[Path]:
    return [path for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))] if path.is_file()]


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = {}
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if rewritten(text) != text:
            stale[path] = rewritten(text)
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} {'is out of date' if arguments else 'rewritten'}")
        if not arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
