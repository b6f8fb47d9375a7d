"""SQuAD by MiniLM, by a small encoder from nothing, and by a baseline that only counts shared words; several seeds.

The articles of SQuAD's development set are divided into training, validation and test (`squad-minilm`). XQuAD has
paragraphs of the same articles: only those of the test articles are asked, in English and in German. Trainings run in
processes side by side; one that has ended is not trained again, one that was stopped is resumed: `--runs` is where they
lie, and where the answers to XQuAD are kept.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/spans.py MINILM --device cuda --seeds 3 --parallel 6
    … --device cpu --seeds 1 --set engine.steps=3 --set validation.every=3 --some 40 --out somewhere        a trial
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import overlap
from scores import trained
from side_by_side import mean, side_by_side, training_options

from headway.data.catalog import find
from headway.data.questions import Question, hold_out_questions, read_questions
from headway.evaluate.answers import AnswerScores
from headway.recipes import RECIPES

TESTS = {"xquad en": "squad/xquad.en.json.gz", "xquad de": "squad/xquad.de.json.gz"}
READERS = {"MiniLM": "squad-minilm", "from nothing": "squad-scratch"}
FIGURES = ("f1", "exact")
BASELINE = "word overlap"


def test_questions(some: int | None) -> dict[str, list[Question]]:
    """Of SQuAD and of XQuAD the questions about the articles that the recipes hold out for the test."""
    data: Any = RECIPES["squad-minilm"].make().data
    train, _ = hold_out_questions(read_questions([find(name) for name in data.train]), data.hold_out)
    _, held = hold_out_questions(train, data.hold_out_test / (1 - data.hold_out))
    articles = {one.article for one in held}
    found = {"test": held}
    for name, file in TESTS.items():
        found[name] = [one for one in read_questions([find(file)]) if one.article in articles]
    return {name: questions[:some] for name, questions in found.items()}


def written(questions: list[Question], file: Path) -> Path:
    rows = [
        {"title": one.article, "context": one.context, "question": one.question,
         "answers": [answer._asdict() for answer in one.answers]}
        for one in questions
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def asked(place: Path, name: str, file: Path, device: str) -> dict[str, float]:
    """The figures of a trained model on a file of questions, kept beside its run."""
    kept = place.parent / f"{place.name}-{file.stem}.json"
    if not kept.exists():
        words = ["evaluate", str(place), str(file), "--json", "--device", device]
        done = subprocess.run([sys.executable, "-m", "headway", *words], check=True, capture_output=True, text=True)
        kept.write_text(done.stdout)
    found = json.loads(kept.read_text())
    return {f"{name} {figure}": found[figure] for figure in FIGURES}


def read(reader: str, seed: int, files: dict[str, Path], options: Namespace) -> dict[str, Any]:
    recipe = READERS[reader]
    name = f"{recipe}-seed-{seed}"
    own = [f"engine.seed={seed}", f"engine.device={options.device}", *options.settings]
    start = str(Path(options.model).resolve()) if reader == "MiniLM" else ""
    score = trained(recipe, name, options.runs, own, start)
    for test, file in files.items():
        score |= asked(options.runs / name, test, file, options.device)
    return score


def baseline(questions: dict[str, list[Question]]) -> dict[str, float]:
    found = {}
    for name, some in questions.items():
        given = [overlap.answer(one.question, one.context) for one in some]
        scores = AnswerScores.of(given, [[right.text for right in one.answers] for one in some])
        found |= {f"{name} {figure}": scores.figures()[figure] for figure in FIGURES}
    return found


def row_of(reader: str, scores: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"reader": reader}
    for key in [f"{name} {figure}" for name in names for figure in FIGURES]:
        each = [round(score[key], 4) for score in scores]
        row |= {key: mean(each), f"{key}, each seed": each}
    if "training seconds" in scores[0]:
        row["seconds_each"] = mean((score["training seconds"] for score in scores), 1)
        row["parameters"] = scores[0]["parameters"]
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model", help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--some", type=int, help="only so many questions of each test, for a trial")
    options = training_options(parser, "spans")
    questions = test_questions(options.some)
    files = {name: written(questions[name], options.runs / f"{name.replace(' ', '-')}.jsonl") for name in TESTS}
    jobs = [(reader, seed) for reader in options.readers for seed in range(1, options.seeds + 1)]
    found = side_by_side(lambda job: read(*job, files, options), jobs, options.parallel)
    rows = [
        row_of(reader, [score for job, score in found.items() if job[0] == reader], list(questions))
        for reader in options.readers
    ]
    rows.append(row_of(BASELINE, [baseline(questions)], list(questions)))
    case = {f"{name}_questions": len(some) for name, some in questions.items()} | {"seeds": options.seeds}
    write(f"spans-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
