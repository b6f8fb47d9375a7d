"""A large corpus of one's own: how much memory its training takes, and how fast its text becomes ids.

Pairs of made-up sentences are written to two files. One child process then does what `headway train translate` does
with such files: hold some pairs out, learn a vocabulary, encode, train a tiny translator for 100 steps. Its memory is
read from /proc all the while. The same child on a small corpus tells what Python, torch and the model need by
themselves.

The rate of preparing stands beside the `tokenizers` library's own: `encode_batch` and `encode_batch_fast` on the same
sentences, held in memory, with the same vocabulary and threads, interleaved with `prepare`, which also reads the
files, fingerprints them, and writes the ids to disk.

    PYTHONPATH=src python benchmarks/corpus.py
    PYTHONPATH=src python benchmarks/corpus.py --pairs 200000 --out /tmp
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from headway.data.readers import read_pairs
from headway.data.store import PAIRS_AT_ONCE, prepare
from headway.text.tokenizer import Tokenizer

STEPS = 100
WORDS_IN_A_SENTENCE = (3, 40)
PAIRS_AT_A_TIME = 50_000
SMALL = 20_000  # pairs of the corpus that tells what a run needs by itself
COMPARED = 50_000  # pairs that each contestant encodes in each repeat
MEBI = 1 << 20
# What is timed in the child: the functions of headway.data, and what they are called here.
PHASES = {
    ("split", "split_corpus"): "hold out",
    ("store", "train_tokenizers"): "learn vocabulary",
    ("store", "prepare"): "encode",
}
SETTINGS = [
    f"engine.steps={STEPS}",
    "engine.batch=1024",
    "engine.device=cpu",
    "data.hold_out=200",
    "validation.sentences=8",
    "search.beam=1",
]

Span = tuple[float, float]
Samples = list[tuple[float, dict[str, int]]]  # when, and the bytes of each kind


def spellings(dice: np.random.Generator, count: int, consonants: str, vowels: str) -> NDArray[np.uint8]:
    """`count` different words of one to five syllables, frequent ones short, as rows of UTF-8 bytes, zeros behind."""
    syllables = [c + v for c in consonants for v in vowels]
    words: dict[str, None] = {}
    while len(words) < count:
        longest = 2 + min(3, len(words) // 200)
        words["".join(dice.choice(syllables, dice.integers(1, longest + 1)))] = None
    raw = [word.encode() for word in words]
    width = max(map(len, raw))
    return np.frombuffer(b"".join(word.ljust(width, b"\0") for word in raw), np.uint8).reshape(count, width)


def text(spelled_VW: NDArray[np.uint8], ids: NDArray[np.integer], last: NDArray[np.bool_]) -> bytes:
    """Words with a space behind each, a full stop and a newline behind a last one."""
    padded = np.zeros((len(ids), spelled_VW.shape[1] + 2), np.uint8)
    padded[:, :-2] = spelled_VW[ids]
    padded[:, -2] = np.where(last, ord("."), 0)
    padded[:, -1] = np.where(last, ord("\n"), ord(" "))
    return padded[padded != 0].tobytes()


def generate(folder: Path, pairs: int, words: int) -> list[Path]:
    """Two aligned files. Words follow Zipf's law; the target has a word for each, but leaves out one in ten."""
    dice = np.random.Generator(np.random.PCG64(0))
    source_VW = spellings(dice, words, "bcdfghjklmnprstvz", "aeiou")
    target_VW = spellings(dice, words, "bdfgklmnprstwxz", "aeioäöüé")
    share = 1 / np.arange(3, words + 3)
    word_of_draw = np.repeat(np.arange(words, dtype=np.int32), np.ceil(share / share.sum() * (1 << 20)).astype(int))
    paths = [folder / "corpus.source", folder / "corpus.target"]
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        for start in range(0, pairs, PAIRS_AT_A_TIME):
            shortest, longest = WORDS_IN_A_SENTENCE
            counts = dice.integers(shortest, longest + 1, min(PAIRS_AT_A_TIME, pairs - start))
            last = np.zeros(counts.sum(), bool)
            last[np.cumsum(counts) - 1] = True
            ids = word_of_draw[dice.integers(0, len(word_of_draw), len(last))]
            source.write(text(source_VW, ids, last))
            said = last | (dice.random(len(last), np.float32) < 0.9)
            target.write(text(target_VW, ids[said], last[said]))
    return paths


def child(record: str, words: list[str]) -> None:
    """`headway WORDS`, with a stop watch on each phase of the preparation."""

    def timed(phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*args: Any, **named: Any) -> Any:
            start = time.time()
            result = work(*args, **named)
            with open(record, "a") as stream:
                stream.write(json.dumps([phase, start, time.time()]) + "\n")
            return result

        return run

    # Before anything of headway.train is loaded, which takes the functions by name.
    for (module_name, name), phase in PHASES.items():
        module = importlib.import_module(f"headway.data.{module_name}")
        setattr(module, name, timed(phase, getattr(module, name)))
    from headway.cli.app import main as headway

    sys.argv = ["headway", *words]
    headway()


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process now, by kind, and the most it ever had."""
    fields = ("VmHWM", "VmRSS", "RssAnon", "RssFile")
    try:
        status = Path(f"/proc/{pid}/status").read_text().split("\n")
    except OSError:
        return {}
    found = (line.split() for line in status if line.startswith(fields))
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in found}


def watched(files: list[Path], folder: Path) -> tuple[dict[str, Span], Samples]:
    """Train on the files in a child; when its phases began and ended, and its memory over time."""
    folder.mkdir()
    record = folder / "phases.jsonl"
    words = ["train", "translate", "--data", *map(str, files), "--size", "tiny", "--out", str(folder / "run")]
    words += ["--set", *SETTINGS]
    command = [sys.executable, __file__, "--child", str(record), *words]
    samples = []
    with (folder / "said.txt").open("wb") as said:
        start = time.time()
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env=os.environ | {"HEADWAY_CACHE": str(folder / "cache")}
        )
        while process.poll() is None:
            samples.append((time.time(), memory(process.pid)))
            time.sleep(0.05)
        end = time.time()
    if process.returncode:
        raise SystemExit((folder / "said.txt").read_text())
    phases: dict[str, Span] = {}
    for name, began, ended in map(json.loads, record.read_text().split("\n")[:-1]):
        phases.setdefault(name, (began, ended))  # what comes later is the held-out part
    phases["train"] = (max(ended for _, ended in phases.values()), end)
    return {"load": (start, min(began for began, _ in phases.values())), **phases}, samples


def row_of(phase: str, span: Span, samples: Samples, pairs: int) -> dict[str, Any]:
    """Seconds, rate and the most memory of a phase, in MiB."""
    seen = [sample for at, sample in samples if span[0] <= at <= span[1] and "VmRSS" in sample]
    peak = {kind: max((sample[kind] for sample in seen), default=0) / MEBI for kind in ("VmRSS", "RssAnon", "RssFile")}
    row = {"phase": phase, "seconds": round(span[1] - span[0], 1)}
    if phase in PHASES.values():
        row["pairs_per_second"] = round(pairs / (span[1] - span[0]))
    return row | {
        "resident_mib": round(peak["VmRSS"]),
        "anonymous_mib": round(peak["RssAnon"]),
        "file_mapped_mib": round(peak["RssFile"]),
    }


def highest(samples: Samples) -> float:
    """The most the process ever had resident, as the kernel counts it, in MiB."""
    return max(sample.get("VmHWM", 0) for _, sample in samples) / MEBI


def rates(files: list[Path], tokenizer: Tokenizer, folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Pairs per second of the library alone and of `prepare` on the same pairs."""
    pairs = list(islice(read_pairs(files), COMPARED))
    some = first(files, folder / "compared", len(pairs))
    starts = range(0, len(pairs), PAIRS_AT_ONCE)
    batches = [[pair[side] for pair in pairs[at : at + PAIRS_AT_ONCE]] for at in starts for side in (0, 1)]

    def library(encode: Callable[..., list[tokenizers.Encoding]]) -> None:
        for batch in batches:
            encode(batch, add_special_tokens=False)

    def headway() -> None:
        prepare(some, tokenizer, tokenizer, folder / "stores", max_length=10_000)
        shutil.rmtree(folder / "stores")

    works: dict[str, Callable[[], None]] = {
        "tokenizers encode_batch": lambda: library(tokenizer.inner.encode_batch),
        "tokenizers encode_batch_fast": lambda: library(tokenizer.inner.encode_batch_fast),
        "headway prepare": headway,
    }
    times = interleaved(works, "cpu", 1, repeats)
    alone = median(times["tokenizers encode_batch"])
    return [
        {
            "who": name,
            "pairs_per_second": round(len(pairs) / median(values)),
            "times_encode_batch": round(alone / median(values), 2),
        }
        for name, values in times.items()
    ]


def first(files: list[Path], folder: Path, pairs: int) -> list[Path]:
    """The first pairs of two aligned files, as two files."""
    folder.mkdir()
    for path in files:
        with path.open("rb") as whole, (folder / path.name).open("wb") as part:
            part.writelines(islice(whole, pairs))
    return [folder / path.name for path in files]


def show(rows: list[dict[str, Any]]) -> None:
    """The phases as a table for a reader."""
    columns = ("phase", "seconds", "pairs_per_second", "resident_mib", "anonymous_mib", "file_mapped_mib")
    print("".join(f"{column:>18}" for column in columns))
    for row in rows:
        print("".join(f"{row.get(column, ''):>18}" for column in columns))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--words", type=int, default=20_000, help="different words in each language")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-corpus-") as name:
        folder = Path(name)
        files = generate(folder, options.pairs, options.words)
        megabytes = round(sum(path.stat().st_size for path in files) / 1e6)
        _, alone = watched(first(files, folder / "first", SMALL), folder / "small")
        phases, samples = watched(files, folder / "large")
        tokenizer = Tokenizer.load(folder / "large" / "run" / "model" / "tokenizer.json")
        beside = rates(files, tokenizer, folder, options.repeats or 5)
    rows = [row_of(phase, span, samples, options.pairs) for phase, span in phases.items()]
    peak = {
        "phase": "all",
        "seconds": round(sum(end - start for start, end in phases.values()), 1),
        "resident_mib": round(highest(samples)),
        "small_corpus_resident_mib": round(highest(alone)),
        "corpus_alone_mib": round(highest(samples) - highest(alone)),
    }
    case = {"pairs": options.pairs, "text_mb": megabytes, "words": options.words, "size": "tiny", "steps": STEPS}
    library = {"tokenizers": tokenizers.__version__}
    write("corpus-cpu", "cpu", [*rows, peak, *beside], options.out, case=case, **library)
    show([*rows, peak])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    else:
        main()
