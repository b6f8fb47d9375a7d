"""What heads and layers of real models do: results of `headway analyse` as the docs show them.

    PYTHONPATH=src python benchmarks/analyses.py demo RUN
    PYTHONPATH=src python benchmarks/analyses.py demo-rnn RUN --runs RUNS
    PYTHONPATH=src python benchmarks/analyses.py hansards FORWARD [REVERSE] [--as NAME]
    PYTHONPATH=src python benchmarks/analyses.py layers MODEL

demo: its translator on its own test sentences; RUN is what `headway demo --out RUN` leaves. demo-rnn: the
alignment of a recurrent translator with additive attention, which is trained on the same sentences first, in RUNS, or
resumed there. hansards: translators en-fr and fr-en on 447 pairs with gold links (Och and Ney 2000), beside an
aligner's output; `word_alignment` below HEADWAY_DATA. layers: a language model on paragraphs of SQuAD, `squad` below
HEADWAY_DATA.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import tempfile
from pathlib import Path
from typing import Any

from scores import trained

import headway
from headway.data.catalog import find
from headway.data.readers import lines
from headway.explore.analyses import ANALYSES
from headway.explore.analyses.analysis import Table, Traced
from headway.folder import find_model, read_card
from headway.plain import change

DOCS = Path(__file__).parent.parent / "docs"
PICTURES = {what: f"analyse-{what}.png" for what in ("heads", "reach", "antecedents")}
PARAGRAPHS = 64
# As the demo's Transformer: its vocabulary, steps and rate.
RECURRENT_DEMO = (
    "data.source=en", "data.target=fr", "data.text.size=1000", "data.text.min_count=1", "model.width=128",
    "model.dropout=0.1", "schedule.peak=4e-3", "schedule.warmup=200", "engine.steps=1000", "engine.batch=2048",
    "engine.average=4", "engine.snapshot=50", "validation.every=500", "validation.score_every=500",
    "validation.sentences=200",
)  # fmt: skip


def analysed(
    model: Any, what: str, files: list[str], *settings: str, picture: str = ""
) -> tuple[Table, dict[str, int]]:  # fmt: skip
    """The table, and on how much it is."""
    one = ANALYSES[what]
    traced = Traced(model, one.tensors, long="skip")
    table = one.run(traced, files, change(one.options(), list(settings)))
    if picture and one.draw is not None:
        one.draw(table, DOCS / picture)
    return table, {"texts": traced.read - traced.skipped} | ({"too long": traced.skipped} if traced.skipped else {})


def rows_of(table: Table, **more: Any) -> list[dict[str, Any]]:
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [more | {key: round(one, 4) if isinstance(one, float) else one for key, one in row.items()} for row in rows]


def demo(run: str, out: str | None) -> None:
    model, data = headway.load(run, "cpu"), Path(run) / "data"
    files, gold = [str(data / "test.en"), str(data / "test.fr")], f"gold={data / 'test.gold'}"
    words = "words=marks"
    links = f"links={data / 'test.antecedents'}"
    for what, settings in (("alignment", [gold, words]), ("antecedents", [gold, words, links])):
        table, case = analysed(model, what, files, *settings, picture=PICTURES.get(what, ""))
        write(f"{what}-demo-cpu", "cpu", rows_of(table), out, case=case, notes=table.notes)


def demo_rnn(run: str, out: str | None, runs: Path) -> None:
    data = Path(run) / "data"
    files = [f"data.{part}={data / f'{part}.en'},{data / f'{part}.fr'}" for part in ("train", "valid", "test")]
    runs.mkdir(parents=True, exist_ok=True)
    score = trained("translate-rnn", "demo-rnn", runs, [*files, *RECURRENT_DEMO])
    model = headway.load(runs / "demo-rnn", "cpu")
    texts, gold = [str(data / "test.en"), str(data / "test.fr")], f"gold={data / 'test.gold'}"
    table, case = analysed(model, "alignment", texts, gold, "words=marks")
    score = {key: value for key, value in score.items() if isinstance(value, int | float)}
    write("alignment-demo-rnn-cpu", "cpu", rows_of(table), out, case=case, notes=table.notes, score=score)


def hansards(forward: str, reverse: str | None, out: str | None, name: str) -> None:
    folder = "word_alignment/enfr"
    text, gold, other = (find(f"{folder}.{name}") for name in ("src-tgt.gz", "gold.gz", "awesome-align.out.gz"))
    settings = [f"gold={gold}", "first=1", f"beside={other}"] + ([f"reverse={reverse}"] if reverse else [])
    model = headway.load(forward, "cpu")
    picture = "" if name else "analyse-alignment.png"
    table, case = analysed(model, "alignment", [str(text)], *settings, picture=picture)
    models = {"forward": _told(forward)} | ({"reverse": _told(reverse)} if reverse else {})
    record = "-".join(filter(None, ("alignment-hansards", name, "cpu")))
    write(record, "cpu", rows_of(table), out, case=case, notes=table.notes, models=models)


def _told(folder: str) -> dict[str, Any]:
    """What it learned from, and how well it does: names of files without their folders."""
    card = read_card(find_model(folder))
    data = (card.run or {}).get("data", {})
    files = [Path(str(file)).name for file in data.get("train", [])]
    scores = {key: value for key, value in card.score.items() if isinstance(value, int | float)}
    return {"family": card.family, "trained on": files, "scores": scores}


def layers(folder: str, out: str | None) -> None:
    model = headway.load(folder, "cpu")
    rows, notes = [], {}
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "paragraphs.txt"
        articles = json.loads("".join(lines(find("squad/dev-v1.1.json"))))["data"]
        found = [" ".join(one["paragraphs"][0]["context"].split()) for one in articles]
        more = [" ".join(part["context"].split()) for one in articles for part in one["paragraphs"][1:]]
        text.write_text("".join(f"{line}\n" for line in (found + more)[:PARAGRAPHS]), encoding="utf-8")
        for what in ("heads", "rollout", "reach", "smoothing"):
            table, case = analysed(model, what, [str(text)], picture=PICTURES.get(what, ""))
            rows += rows_of(table, analysis=what)
            notes[what] = table.notes
    write("layers-cpu", "cpu", rows, out, case=case, notes=notes, model=_told(folder))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["demo", "demo-rnn", "hansards", "layers"])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--as", default="", dest="name", help="of the record of the Hansards, beside the Transformer's")
    parser.add_argument("--runs", type=Path, default=Path("runs/analyses"), help="where demo-rnn trains")
    options = parser.parse_args()
    first, *others = options.models
    if options.what == "demo-rnn":
        demo_rnn(first, options.out, options.runs)
    elif options.what == "hansards":
        hansards(first, others[0] if others else None, options.out, options.name)
    else:
        {"demo": demo, "layers": layers}[options.what](first, options.out)


if __name__ == "__main__":
    main()
