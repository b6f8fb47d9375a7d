"""What the heads of real models do: grammar, pronouns, importance, layers, one word in many sentences.

An encoder (all-MiniLM-L6-v2, 22.7 million weights) and a GPT that headway has trained, on the English Web Treebank and
on GAP, by the analyses of `headway analyse`. Heads and offsets are chosen on the development files and measured on the
test files. Writes `results/looking-cpu.json` and the pictures of `docs/looking.md`.

    HEADWAY_DATA=DATA python benchmarks/looking.py MINILM GPT
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from senses import written

import headway
from headway.data.catalog import find
from headway.data.conllu import read_conllu
from headway.explore.analyses import ANALYSES
from headway.explore.analyses.analysis import Table, Traced

DOCS = Path(__file__).parent.parent / "docs"
TREEBANK = [f"ud_english_ewt/en_ewt-ud-{part}.conllu" for part in ("dev", "test")]
GAP = [f"gap/gap-{part}.tsv" for part in ("development", "test")]
SHARES = ("next", "previous", "first", "separator", "self")
LENS = "He put the key in the door and opened it, and then he looked at the old man."


@dataclass(frozen=True)
class Looked:
    """One model, and what is asked of it."""

    name: str
    loaded: Any
    rows: list[dict[str, Any]]

    def at(self, what: str, files: list[str], lines: int | None = None, picture: str | None = None) -> Table:
        one, start = ANALYSES[what], time.perf_counter()
        traced = Traced(self.loaded, one.tensors, long="skip", lines=lines)
        table = one.run(traced, files, one.options())
        if picture is not None and one.draw is not None:
            one.draw(table, DOCS / picture)
        took = time.perf_counter() - start
        self.tell("about", analysis=what, texts=traced.read, too_long=traced.skipped, seconds=round(took, 1),
                  notes=list(table.notes))  # fmt: skip
        return table

    def tell(self, what: str, /, **row: Any) -> None:
        self.rows.append({"what": what, "model": self.name} | {key: _short(value) for key, value in row.items()})


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _named(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def relations(model: Looked, sentences: int, picture: str) -> None:
    table = model.at("relations", [str(find(name)) for name in TREEBANK], sentences, picture)
    for row in _named(table):
        row["head"] = f"{row.pop('layer')}.{row['head']}"
        model.tell("relation", better=table.more["looks"][row["relation"]] == row["looks"], **row)
    # In the way of reading that was better where heads were chosen.
    best = [row for row in _named(table) if table.more["looks"][row["relation"]] == row["looks"]]
    pairs = [row["pairs"] for row in best]
    means = {name: float(np.average([row[name] for row in best], weights=pairs)) for name in ("accuracy", "by offset")}
    ahead = sum(row["accuracy"] > row["by offset"] for row in best)
    model.tell("overall", relations=len(best), pairs=sum(pairs), ahead=ahead, **means)


def pronouns(model: Looked, texts: int, picture: str | None) -> None:
    table = model.at("pronouns", [str(find(name)) for name in GAP], texts, picture)
    count = int(table.notes[0].split()[0].replace(",", ""))
    for row in _named(table):
        if row["layer"] is None or [row["layer"], row["head"]] == table.more["best"]:
            who = row["site"] if row["layer"] is None else f"head {row['layer']}.{row['head']}"
            model.tell("pronoun", who=who, pronouns=count, choosing=row["right, choosing"], right=row["right"],
                       mention=row["mention"])  # fmt: skip


def heads(model: Looked, texts: str, lines: int) -> None:
    """By layer the mean over its heads, and for each measure the head that has most of it."""
    rows = _named(model.at("heads", [texts], lines))
    for layer in sorted({row["layer"] for row in rows}):
        mine = [row for row in rows if row["layer"] == layer]
        means = {
            name: float(np.mean([row[name] for row in mine]))
            for name in (*SHARES, "entropy", "distance")
            if mine[0][name] is not None
        }
        model.tell("heads", layer=layer, **means)
    for name in SHARES:
        if any(row[name] for row in rows):
            best = max(rows, key=lambda row: row[name])
            model.tell("most", measure=name, head=f"{best['layer']}.{best['head']}", share=best[name])


def importance(model: Looked, texts: str, lines: int, picture: str) -> None:
    rows = _named(model.at("importance", [texts], lines, picture))
    for row in sorted(rows, key=lambda row: -row["change"])[:5]:
        model.tell("importance", head=f"{row['layer']}.{row['head']}", change=row["change"], error=row["error"])


def by_layer(model: Looked, what: str, file: str, lines: int | None = None, picture: str | None = None) -> None:
    for row in _named(model.at(what, [file], lines, picture)):
        model.tell(what, **{key: value for key, value in row.items() if value is not None})


def induction(model: Looked) -> None:
    rows = _named(model.at("induction", []))
    for name in ("previous", "induction"):
        best = max(rows, key=lambda row: row[name])
        model.tell("induction", measure=name, head=f"{best['layer']}.{best['head']}", score=best[name])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("encoder", help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("gpt", help="the folder of a GPT")
    parser.add_argument("--sentences", type=int, default=1600, help="of the treebank, half of them to choose on")
    parser.add_argument("--pronouns", type=int, default=1000, help="texts of GAP, half of them to choose on")
    parser.add_argument("--texts", type=int, default=200, help="test sentences whose heads are looked at")
    parser.add_argument("--few", type=int, default=40, help="test sentences that are read once for every head")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    encoder, gpt = (
        Looked(name, headway.load(folder, chosen.device), rows)
        for name, folder in (("MiniLM", chosen.encoder), ("GPT", chosen.gpt))
    )
    with tempfile.TemporaryDirectory() as folder:
        texts, broke, one = (str(Path(folder) / name) for name in ("test.txt", "broke.txt", "one.txt"))
        Path(texts).write_text("".join(f"{found.text}\n" for found in read_conllu(find(TREEBANK[1]))), encoding="utf-8")
        written(Path(broke))
        Path(one).write_text(f"{LENS}\n", encoding="utf-8")
        for model, name in ((encoder, "minilm"), (gpt, "gpt")):
            relations(model, chosen.sentences, f"looking-relations-{name}.png")
            heads(model, texts, chosen.texts)
            pronouns(model, chosen.pronouns, "looking-pronouns.png" if model is encoder else None)
            by_layer(model, "contexts", broke, picture=f"looking-contexts-{name}.png")
        importance(gpt, texts, chosen.few, "looking-importance.png")
        by_layer(gpt, "lens", texts, chosen.few)
        gpt.at("lens", [one], picture="looking-lens.png")
        induction(gpt)
    case = {
        "treebank sentences": chosen.sentences, "GAP texts": chosen.pronouns, "threads": 1,
        "GPT weights": sum(weight.numel() for weight in gpt.loaded.model.parameters()),
    }  # fmt: skip
    write(f"looking-{chosen.device}", chosen.device, rows, chosen.out, case=case)


if __name__ == "__main__":
    main()
