"""The tables of the README and the docs, made from benchmarks/results/*.json.

A page says where: what stands between `<!-- results:begin beam -->` and `<!-- results:end -->` is replaced by that
table. A result that is not there leaves its rows out. Single figures in running text are filled in too (`recorded.py`),
and what `headway recipes` says of each recipe.

    python benchmarks/table.py            rewrite the pages
    python benchmarks/table.py --check    only say whether they are up to date (exit 1 if not)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import chosen
import columns
import columns_attention as attention
import columns_encoders as encoders
import columns_graphs as graphs
import columns_seeing as seeing
import columns_serving as serving
from formats import Column, count, number, share
from recorded import BABI_QUOTED, HEADLINES, Row, filled, reaches, read, scored
from studies import STUDIES

from headway.recipes import GROUPS

ROOT = Path(__file__).parent.parent
REACHES = ROOT / "src" / "headway" / "recipes" / "reaches.json"  # what `headway recipes` says
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- results:begin ?([\w ]*) ?-->\n).*?(<!-- results:end -->)", re.DOTALL)
PICTURES = ("cifar10-vit", "cifar10-cct", "fashion-mnist-cct", "fashion-mnist-vit")
ARENA = ("arena-listops", "arena-text", "arena-pictures")
NOTHING = "*Nothing measured yet: `benchmarks/README.md` says how.*"

# Keys of records that were written before they had today's names; a record stays as its script wrote it.
EARLIER = {"mean_output_pieces": "mean_output_tokens", "foretold": "predicted", "pieces": "vocabulary"}


def table(columns: list[Column], rows: list[Row]) -> str:
    """Markdown; a column that no row has a value for is left out, numbers stand on the right."""
    used = [column for column in columns if any(row.get(column[0]) is not None for row in rows)]
    right = [any(isinstance(row.get(key), int | float) for row in rows) for key, _, _ in used]
    head = [[heading for _, heading, _ in used], ["---:" if number else "---" for number in right]]
    body = [[write(row[key]) if row.get(key) is not None else "" for key, _, write in used] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*head, *body])


def _facts(record: Row, only: Collection[str] = ()) -> str:
    """One line on what was measured where: the case or `only` a part of it, the machine, the versions, the day."""
    case = {key: value for key, value in record.get("case", {}).items() if not only or key in only}
    named = {EARLIER.get(key, key): value for key, value in case.items()}
    said_of = [f"{key.replace('_', ' ')} {_plain(value)}" for key, value in named.items()]
    versions = [f"{name} {value}" for name, value in record.get("versions", {}).items() if name != "python"]
    said = f"{record['machine']}: {', '.join(said_of)}" if said_of else record["machine"]
    return f"{said} ({', '.join([*versions, record['date']])})."


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def scores(results: Path, kinds: tuple[str, ...] = tuple(HEADLINES), only: tuple[str, ...] = ()) -> list[str]:
    """The recipes whose figure is one of these; `only` some recipes."""
    rows = [row for row in scored(results) if row["kind"] in kinds and (not only or row["recipe"] in only)]
    return [table(columns.SCORES, rows)] if rows else []


def one(results: Path, name: str, columns: list[Column]) -> list[str]:
    """The facts of a result, then its table."""
    record = read(results, name)
    return [_facts(record), table(columns, record["rows"])] if record else []


def speed(results: Path, name: str, columns: list[Column]) -> list[str]:
    """For each machine that has a result."""
    return [block for device in ("cuda", "cpu") for block in one(results, f"{name}-{device}", columns)]


def with_forest(results: Path, name: str, columns: list[Column]) -> list[str]:
    """What was learned from graphs, and the random forest beside it."""
    return [*speed(results, name, columns), *one(results, f"{name}-forest", columns)]


def joined(results: Path, names: Sequence[str], columns: list[Column]) -> list[str]:
    """The rows of several records as one table, each with its seeds, its machine and its day."""
    records = [record for name in names if (record := read(results, name))]
    own = ("seeds", "machine", "date")
    rows = [row | {key: (record | record["case"])[key] for key in own} for record in records for row in record["rows"]]
    return [table([*columns, *((key, key, str) for key in own)], rows)] if rows else []


def study(results: Path, name: str) -> list[str]:
    """An experiment on each machine that has it: facts, table, and the picture beside its record."""
    blocks, (stem, shown, said) = [], STUDIES[name]
    for device in ("cuda", "cpu"):
        if record := read(results, f"{stem}-{device}"):
            columns, rows = shown(record["rows"])
            blocks += [_facts(record), table(columns, rows)] if rows else []
            if said and (results / f"{stem}-{device}.svg").is_file():
                blocks.append(f"![{said}](../benchmarks/results/{stem}-{device}.svg)")
    return blocks


def by_device(**shown: list[Column]) -> dict[str, Callable[[Path], list[str]]]:
    """Tables of records that are called as the tables are."""
    return {name: partial(speed, name=name.replace("_", "-"), columns=own) for name, own in shown.items()}


# The front page: what, in which unit, the record, headway's row, its strongest peer's row, which number.
FRONT = [
    ("training an encoder-decoder, base size", "tokens/s", "training-cuda", {"who": "headway compile+graphs"},
     {"who": "torch.nn.Transformer"}, "target_tokens_per_second"),
    ("training GPT, 124M", "tokens/s", "gpt-cuda", {"who": "headway compile+graphs", "size": "124M"},
     {"who": "nanoGPT", "size": "124M"}, "tokens_per_second"),
    ("GPT writes, 124M, one text", "tokens/s", "decoding-cuda", {"who": "headway graphs", "size": "124M", "rows": 1},
     {"who": "transformers, static cache, compiled", "size": "124M", "rows": 1}, "tokens_per_second"),
    ("beam search, 1,000 sentences", "sentences/s", "beam-cuda", {"who": "headway, batch 1000"},
     {"who": "transformers Marian, batch 1000"}, "sentences_per_second"),
    ("512 prompts, Llama of 1.1 billion weights", "tokens/s", "serving-cuda", {"who": "headway"},
     {"who": "transformers continuous batching"}, "tokens_per_second"),
    ("training an encoder-decoder, tiny size", "tokens/s", "training-cpu", {"who": "headway eager"},
     {"who": "transformers Marian"}, "target_tokens_per_second"),
    ("a translator, 1,000 sentences", "sentences/s", "engines", {"engine": "headway"},
     {"engine": "ctranslate2 float32"}, "sentences_per_second"),
    ("a Llama of SmolLM2's shape writes, one text", "tokens/s", "imported-cpu", {"who": "headway", "threads": 2},
     {"who": "transformers", "threads": 2}, "per_second"),
]  # fmt: skip


def front(results: Path) -> list[str]:
    """One line a comparison: headway, its strongest peer, how many times as much."""
    rows = []
    for what, unit, name, mine, theirs, key in FRONT:
        record = read(results, name)
        if record is not None:
            own, peer = (_number(record, who, key) for who in (mine, theirs))
            name = next(iter(theirs.values())).split(", batch")[0]
            rows.append(
                {**record, "what": f"{what}, {unit}", "headway": own, "peer": peer, "name": name, "times": own / peer}
            )
    return [table(columns.COMPARED, rows)] if rows else []


def _number(record: Row, who: Row, key: str) -> float:
    return next(float(row[key]) for row in record["rows"] if who.items() <= row.items())


def safety(results: Path) -> list[str]:
    record = read(results, "safety-cuda")
    if record is None:
        return []
    disk = record["disk"]
    said = (
        f"{disk['checkpoint_megabytes']:,} MB each, {disk['writing_seconds_each']} s to write beside the training; "
        f"{disk['left_out']} of {disk['due']} left out, since the last was still being written; the disk takes "
        f"{disk['disk_megabytes_per_second']:,} MB/s."
    )
    return [_facts(record), table(columns.SAFETY, record["rows"]), said]


def corpus(results: Path) -> list[str]:
    record = read(results, "corpus-cpu")
    if record is None:
        return []
    phases = [row for row in record["rows"] if "phase" in row]
    rates = [row for row in record["rows"] if "who" in row]
    return [_facts(record), table(columns.CORPUS, phases), table(columns.ENCODING, rates)]


def counting(results: Path) -> list[str]:
    record = read(results, "counting-cpu")
    if record is None:
        return []
    pace = record["pace"]
    said = (
        f"{pace['tokens']:,} words drawn by Zipf's law, n = 3: {pace['seconds']} s of one core, "
        f"{pace['ngrams']:,} n-grams."
    )
    return [_facts(record), table(columns.COUNTING, record["rows"]), said]


def heads(results: Path, name: str, columns: list[Column]) -> list[str]:
    """What an analysis comes to: its rows without those of single heads and layers."""
    record = read(results, name)
    if record is None:
        return []
    told = [row for row in record["rows"] if row["what"] not in ("head", "mean of the layer")]
    return [_facts(record), table(columns, told)]


def layers(results: Path) -> list[str]:
    """What several analyses say of the same layers, side by side."""
    record = read(results, "layers-cpu")
    if record is None:
        return []
    by_layer: dict[str, Row] = {}
    for row in record["rows"]:
        if row["analysis"] != "heads":
            by_layer.setdefault(str(row["layer"]), {}).update(row | {"layer": str(row["layer"])})
    order = sorted(by_layer, key=lambda layer: (layer != "embedding", layer == "norm", layer.zfill(3)))
    return [_facts(record), table(attention.LAYERS, [by_layer[layer] for layer in order])]


def looking(results: Path, what: str) -> list[str]:
    """One analysis of what heads do. The input of the first layer has no number."""
    record = read(results, "looking-cpu")
    if record is None:
        return []
    rows = [row | {"layer": "input" if row.get("layer") == -1 else row.get("layer")} for row in record["rows"]]
    return [table(attention.LOOKING[what], [row for row in rows if row["what"] == what])]


def worked(results: Path, what: str) -> list[str]:
    """One table of the worked pages; that of what the readers' heads look at has no rows of its own."""
    record = read(results, "worked-cpu")
    if record is None:
        return []
    rows = [row for row in record["rows"] if row["what"] == ("roles" if what == "role heads" else what)]
    return [table(attention.WORKED[what], [row for row in rows if what != "role heads" or row["by word"] is not None])]


def relations(results: Path) -> list[str]:
    """A row a relation that is not rare, the models side by side; each in the way of reading that finds more."""
    record = read(results, "looking-cpu")
    if record is None:
        return []
    often = {row["relation"] for row in record["rows"] if row["what"] == "relation" and row["pairs"] >= attention.OFTEN}
    merged: dict[str, Row] = {}
    models = list(dict.fromkeys(row["model"] for row in record["rows"]))
    for row in record["rows"]:
        if row["what"] == "relation" and row["better"] and row["relation"] in often:
            mine = merged.setdefault(row["relation"], {"relation": row["relation"]})
            mine[f"{row['model']} head"] = f"{row['head']}, {row['looks']}"
            mine[f"{row['model']} right"] = row["accuracy"]
            mine[f"{row['model']} offset"] = f"{share(row['by offset'])} ({row['offset']:+d})"
            mine[f"{row['model']} pairs"] = row["pairs"]
    columns: list[Column] = [("relation", "relation", str)]
    for name in models:
        columns += [
            (f"{name} head", f"{name}: layer.head, direction", str), (f"{name} right", "right", share),
            (f"{name} offset", "best offset", str), (f"{name} pairs", "pairs", count),
        ]  # fmt: skip
    return [_facts(record), *looking(results, "overall"), table(columns, list(merged.values()))]


def babi(results: Path) -> list[str]:
    """A row a task, a column a part that was measured; then the means beside those of the paper."""
    records = {part: record for part in BABI_QUOTED if (record := read(results, f"babi-{part}"))}
    if not records:
        return []
    rows: dict[int, Row] = {}
    for part, record in records.items():
        for row in record["rows"]:
            rows.setdefault(row["task"], {"task": str(row["task"]), "name": row["name"]})[part] = row["error"]
    means = {part: record["mean_error"] for part, record in records.items()}
    paper = {part: BABI_QUOTED[part] / 100 for part in records}
    last: list[Row] = [
        {"task": "mean", "name": "", **means}, {"task": "quoted from", "name": "Sukhbaatar et al. 2015", **paper},
    ]  # fmt: skip
    told = ("questions", "hops", "width", "tying", "query", "epochs", "linear_epochs", "restarts")
    facts = [f"{part}: {_facts(record, told)} {record['seconds']:.0f} s." for part, record in records.items()]
    return [*facts, table(columns.BABI, [*(rows[task] for task in sorted(rows)), *last])]


def tried(results: Path, *names: str) -> list[str]:
    """What was tried on validation data, record after record."""
    rows = [row for name in names if (record := read(results, name)) for row in chosen.tried(record)]
    return [table(chosen.TRIED, rows)] if rows else []


def deck_d(results: Path, name: str) -> list[str]:
    """One of deck D's tables; of that with skips, as in the deck, only the columns that have something."""
    record = read(results, "deck-d")
    if record is None:
        return []
    found = next(row for row in record["rows"] if row["name"] == name)
    if "rows" in found:
        keys = ["beginning", "mask", "down", "please"]
        return [table([(key, key, str if key in keys[:2] else number) for key in keys], found["rows"])]
    rows = [dict(zip(found["words"], p, strict=True)) for p in found["p"]]
    for history, row in zip(found["histories"], rows, strict=True):
        row["behind"] = history
    used = [word for word in found["words"] if name != "with skips" or any(row[word] for row in rows)]
    return [table([("behind", "", str), *((word, word, number) for word in used)], rows)]


BY_DEVICE = by_device(
    training=columns.TRAINING, beam=columns.BEAM, decoding=columns.DECODING, whisper=columns.WHISPER,
    gpt=columns.GPT, imported=columns.IMPORTED, serving=columns.SERVING, verifying=columns.VERIFYING,
    recurrent=columns.RECURRENT, conv_seq2seq=columns.CONV_SEQ2SEQ, tagging=encoders.TAGGING, vit=seeing.VIT,
    digits=encoders.DIGITS, scenes=seeing.SCENES, scenes_objects=seeing.SCENES, flickr8k=seeing.FLICKR8K,
    pennfudan=seeing.PENNFUDAN, text_cnn=encoders.TEXT_CNN, classifiers=encoders.CLASSIFIERS,
    last_words=encoders.LAST_WORDS, rnn_seq2seq=columns.RNN_SEQ2SEQ, vectors=columns.VECTORS,
    shakespeare=columns.SHAKESPEARE, spans=encoders.SPANS, pretraining_words=encoders.PRETRAINING_WORDS,
    pretraining_labels=encoders.PRETRAINING_LABELS, pretraining_speed=encoders.PRETRAINING_SPEED,
    transfer=encoders.TRANSFER, transfer_r_drop=encoders.TRANSFER_POOLING,
    transfer_pooling=encoders.TRANSFER_POOLING, big_bird=attention.BIG_BIRD, http_serving=serving.HTTP_SERVING,
    azure=serving.AZURE, servers=serving.SERVERS, streams=serving.STREAMS, embedding=columns.EMBEDDING,
    loading=columns.LOADING, tracing=attention.TRACING, ladder=columns.LADDER, road=columns.ROAD,
    pairs=columns.PAIRS,
)  # fmt: skip
TABLES: dict[str, Callable[[Path], list[str]]] = {
    "front": front,
    "scores": scores,
    "translation": lambda results: scores(results, ("BLEU",)),
    "road_scores": lambda results: scores(results, ("BLEU",), tuple(GROUPS["road"])),
    "labels": lambda results: scores(results, ("f1", "accuracy")),
    "picture_scores": lambda results: scores(results, ("accuracy",), PICTURES),
    "arena": lambda results: scores(results, ("accuracy",), ARENA),
    "spoken": lambda results: scores(results, ("word error rate",)),
    "language": lambda results: scores(results, ("perplexity", "loss")),
    **BY_DEVICE,
    "speech": lambda results: one(results, "speech-whisper-tiny", columns.SPEECH),
    "awareness": lambda results: speed(results, "classifiers", encoders.AWARENESS),
    "g2p": lambda results: one(results, "g2p", columns.G2P),
    "robots": lambda results: one(results, "robots", columns.ROBOTS),
    "hopper": lambda results: one(results, "hopper", columns.HOPPER),
    "memory": lambda results: one(results, "memory", columns.MEMORY),
    "memory_onward": lambda results: one(results, "memory-onward", columns.MEMORY),
    "memory_speed": lambda results: one(results, "memory-speed", columns.MEMORY_SPEED),
    "decisions": lambda results: one(results, "decisions", columns.DECISIONS),
    "sst2_tried": lambda results: tried(results, "choose-sst2-minilm", "choose-sst2-minilm-r-drop"),
    "text_cnn_batches": lambda results: [table(*shown) for shown in chosen.batches(read(results, "text-cnn-cuda"))],
    "clients": lambda results: [
        block for name, *shown in serving.asked(read(results, "clients")) for block in (f"{name}:", table(*shown))
    ],
    "zinc": lambda results: joined(results, [f"zinc-{who}-cuda" for who in graphs.ZINC_MODELS], graphs.ZINC),
    "mutag": partial(with_forest, name="mutag", columns=graphs.MUTAG),
    "molecules": partial(with_forest, name="molecules", columns=graphs.MOLECULES),
    "mixture": lambda results: one(results, "mixture", columns.MIXTURE),
    **{
        f"alignment_{data}": partial(heads, name=f"alignment-{data.replace('_', '-')}-cpu", columns=attention.ALIGNMENT)
        for data in ("demo", "hansards", "demo_rnn", "hansards_rnn")
    },
    "antecedents": lambda results: heads(results, "antecedents-demo-cpu", attention.ANTECEDENTS),
    "layers": layers,
    "safety": safety,
    "corpus": corpus,
    "engines": lambda results: one(results, "engines", columns.ENGINES),
    "counting": counting,
    "babi": babi,
    "relations": relations,
    "pronouns": partial(looking, what="pronoun"),
    **{what: partial(looking, what=what) for what in ("heads", "importance", "lens", "contexts")},
    **{f"worked_{what.replace(' ', '_')}": partial(worked, what=what) for what in attention.WORKED},
    **{name: partial(study, name=name) for name in STUDIES},
    "treebank_mlp": lambda results: scores(results, ("perplexity",), ("ptb-mlp", "ptb-mlp-direct", "ptb-kn5")),
    "show_me": lambda results: deck_d(results, "first order, show me"),
    **{f"{order}_order": partial(deck_d, name=f"{order} order, battery") for order in ("first", "second")},
    "skips": lambda results: deck_d(results, "with skips"),
    "votes": lambda results: deck_d(results, "votes"),
}


def rewritten(page: str, results: Path = RESULTS) -> str:
    """The page with every block between its markers made anew."""

    def fill(found: re.Match[str]) -> str:
        names = found[2].split()
        unknown = [name for name in names if name not in TABLES]
        if unknown:
            raise SystemExit(f"there is no table '{unknown[0]}'; there is: {', '.join(TABLES)}")
        blocks = [block for name in names for block in TABLES[name](results)]
        return f"{found[1]}\n" + "\n\n".join(blocks or [NOTHING]) + f"\n\n{found[3]}"

    return filled(BLOCK.sub(fill, page), results)


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
    said = json.dumps(reaches(RESULTS), indent=1, ensure_ascii=False) + "\n"
    if not REACHES.exists() or REACHES.read_text(encoding="utf-8") != said:
        stale[REACHES] = said
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} {'is out of date' if arguments else 'rewritten'}")
        if not arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
