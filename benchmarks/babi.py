"""bAbI's 20 tasks by memory networks (Sukhbaatar et al. 2015): ten restarts of every task trained at once.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/babi.py --device cuda
    … --device cpu --parts tasks-1k --tasks 1 --restarts 2 --epochs 20 --out somewhere      a trial

As the paper does it: three hops, position encoding, linear start, random noise, layer-wise tying; width 20 for one task
and 50 for all; of ten restarts the one with the lowest training error. A part with a record is not trained again unless
--again is given. Of the 10k questions, task 3's training file is missing.
"""

from __future__ import annotations

from measure import RESULTS, arguments, write

# isort: split
import argparse
import json
import os
import re
import tarfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from members import Group, Members, Settings, Training
from torch import Tensor

from headway.data.stories import Asked, StoryStore, answers_in, hold_out_stories, numbered, plain, read_stories
from headway.models import build
from headway.models.heads import Answers
from headway.models.memory import SIZES
from headway.plain import change
from headway.text.tokenizer import TextOptions, Tokenizer

ARCHIVES = {"1k": "tasks_1-20_v1-2_en.tar.gz", "10k": "tasks_1-20_v1-2_en-10k.tar.gz"}
MEMBER = re.compile(r".*/qa(\d+)_(.+)_(train|test)\.txt")
HELD_OUT = 0.1
WORDS = TextOptions("word", lowercase=True, min_count=1)


@dataclass(frozen=True)
class Part:
    """joint: one model for all tasks. size: of `headway.models.memory`."""

    amount: str
    joint: bool
    size: str
    settings: Settings


PARTS = {
    "tasks-1k": Part("1k", False, "small", Settings(epochs=100, halve=25)),
    "joint-1k": Part("1k", True, "joint", Settings(epochs=60, halve=15)),
    "tasks-10k": Part("10k", False, "small", Settings(epochs=100, halve=25)),
    "joint-10k": Part("10k", True, "joint", Settings(epochs=20, halve=5)),
}


def read_tasks(amount: str, wanted: list[int] | None) -> dict[int, tuple[str, list[Asked], list[Asked]]]:
    """By number: the name of a task, its training questions and its test questions."""
    archive = Path(os.environ["HEADWAY_DATA"]) / "babi" / ARCHIVES[amount]
    with tarfile.open(archive) as opened:
        files = {(int(at[1]), at[3]): (at[2], name) for name in opened.getnames() if (at := MEMBER.fullmatch(name))}
    found = {}
    for number, part in sorted(files):
        if part == "train" and (not wanted or number in wanted):
            asked = [read_stories([f"{archive}/{files[number, half][1]}"]) for half in ("train", "test")]
            found[number] = files[number, part][0].replace("-", " "), *asked
    return found


@dataclass(frozen=True)
class Questions:
    """Of one model: its vocabulary and answers, and its questions as numbers, in training, validation and tests."""

    vocabulary: int
    answers: int
    train: StoryStore
    valid: StoryStore
    tests: list[StoryStore]

    @classmethod
    def of(cls, tasks: list[tuple[list[Asked], list[Asked]]], memory: int) -> Questions:
        halves = [hold_out_stories(train, HELD_OUT) for train, _ in tasks]
        train, valid = ([one for half in halves for one in half[at]] for at in (0, 1))
        answers = answers_in(train)
        sentences = dict.fromkeys(sentence for one in train for sentence in (*one.story, one.question))
        tokenizer = Tokenizer.train([*map(plain, sentences), *answers], WORDS)

        def store(asked: list[Asked]) -> StoryStore:
            return StoryStore(asked, numbered(asked, answers), tokenizer.encode_batch, memory)

        return cls(len(tokenizer), len(answers), store(train), store(valid), [store(test) for _, test in tasks])


def begun(groups: list[Questions], config: Any, settings: Settings, options: argparse.Namespace) -> Training:
    """All restarts of all groups as one batch of models, before their first step."""
    vocabulary, answers = (max(getattr(group, name) for group in groups) for name in ("vocabulary", "answers"))
    head = Answers(labels=tuple(map(str, range(answers))))
    models, at, seeds = [], [], []
    for group in range(len(groups)):
        for seed in range(1, options.restarts + 1):
            torch.manual_seed(seed)
            models.append(build("memory", config, (vocabulary,), head))
            at.append(group)
            seeds.append(seed)
    members = Members(models, at, [group.answers for group in groups], options.device)
    valid = Group([group.valid for group in groups], options.device)
    return Training(members, [group.train for group in groups], valid, settings, seeds)


def row_of(task: int, name: str, wrong: Tensor, errors: Tensor) -> dict[str, Any]:
    """A task's errors in training and in the test, a value a restart: the restart that is best in training counts."""
    best = int(wrong.argmin())
    return {
        "task": task, "name": name, "restart": best + 1, "training_error": round(float(wrong[best]), 4),
        "error": round(float(errors[best]), 4), "each": [round(float(error), 4) for error in errors],
    }  # fmt: skip


def trained(part: Part, options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row a task, and what there is to say of all."""
    config = change(SIZES[part.size], options.set)
    settings = change(part.settings, options.train)
    settings = settings if options.epochs is None else replace(settings, epochs=options.epochs)
    tasks = read_tasks(part.amount, options.tasks)
    halves = [(train, test) for _, train, test in tasks.values()]
    groups = [Questions.of(halves, config.memory)] if part.joint else [Questions.of([h], config.memory) for h in halves]
    training = begun(groups, config, settings, options)
    members, began = training.members, time.perf_counter()
    training.run(lambda line: print(f"{line} ({time.perf_counter() - began:.0f} s)", flush=True))
    wrong_M, _ = members.judged(training.questions)
    seconds = time.perf_counter() - began
    tests = Group([store for group in groups for store in group.tests], options.device)
    errors_M, _ = members.judged(tests)
    rows = []
    for number, (task, (name, *_)) in enumerate(tasks.items()):
        first = 0 if part.joint else number * options.restarts
        mine = slice(first, first + options.restarts)
        if part.joint:
            errors_M, _ = members.judged(tests, torch.full_like(members.group_M, number))
        rows.append(row_of(task, name, wrong_M[mine], errors_M[mine]))
    case = {
        "questions": part.amount, "hops": config.hops, "width": config.width, "epochs": settings.epochs,
        "restarts": options.restarts, "models_at_once": members.count,
    }  # fmt: skip
    errors = [row["error"] for row in rows]
    about = {
        "case": case, "seconds": round(seconds, 1), "mean_error": round(sum(errors) / len(errors), 4),
        "failed": sum(error > 0.05 for error in errors), "tasks": len(errors),
    }  # fmt: skip
    return rows, about


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tasks", nargs="+", type=int, metavar="N", help="some of the tasks (default: all)")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--epochs", type=int, help="fewer than the paper's, for a trial")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of the model, such as hops=2")
    parser.add_argument("--train", nargs="+", default=[], metavar="KEY=VALUE", help="of the training, such as wait=3")
    parser.add_argument("--again", action="store_true", help="train parts that have a record too")
    options = parser.parse_args()
    for name in options.parts:
        record = Path(options.out or RESULTS) / f"babi-{name}.json"
        if record.exists() and not options.again:
            print(
                f"{name}: mean error {json.loads(record.read_text())['mean_error']:.2%}, from {record.name}", flush=True
            )
            continue
        rows, about = trained(PARTS[name], options)
        write(f"babi-{name}", options.device, rows, options.out, **about)
        print(f"{name}: mean error {about['mean_error']:.2%} of {about['tasks']} tasks, {about['seconds']:.0f} s")


if __name__ == "__main__":
    main()
