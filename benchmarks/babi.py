"""bAbI's 20 tasks by memory networks (Sukhbaatar et al. 2015): ten restarts of every task trained at once.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/babi.py --device cuda
    … --device cpu --parts tasks-1k --tasks 1 --restarts 2 --epochs 20 --out somewhere      a trial

As the paper does it: three hops, position encoding, linear start, random noise, adjacent tying; width 20 for one task
and 50 for all; of ten restarts the one with the lowest training error. As in its authors' own program, empty places of
the memory are seen, words have the same weights at the same place in sentences of any length, which are 1 on average,
and the linear start has a number of epochs of its own. A part with a record is not trained again unless --again is
given. Of the 10k questions, task 3's training file is missing.
"""

from __future__ import annotations

from measure import RESULTS, arguments, write

# isort: split
import argparse
import dataclasses
import itertools
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
MODEL = ("tying=adjacent", "query=added", "empty=seen", "sentence.scale=2", "sentence.words=11")


@dataclass(frozen=True)
class Part:
    """joint: one model for all tasks. size: of `headway.models.memory`."""

    amount: str
    joint: bool
    size: str
    settings: Settings


PARTS = {
    "tasks-1k": Part("1k", False, "small", Settings(epochs=100, halve=25, linear_epochs=20)),
    "joint-1k": Part("1k", True, "joint", Settings(epochs=60, halve=15, linear_epochs=30)),
    "tasks-10k": Part("10k", False, "small", Settings(epochs=100, halve=25, linear_epochs=20)),
    "joint-10k": Part("10k", True, "joint", Settings(epochs=20, halve=5, linear_epochs=5)),
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
    """Of one model: its vocabulary, the word of each answer (an answer of several words is a word of its own), and its
    questions as numbers, in training, validation and tests."""

    vocabulary: int
    words: list[int]
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

        written = tokenizer.encode_batch(list(answers))
        own = itertools.count(len(tokenizer))
        words = [ids[0] if len(ids) == 1 else next(own) for ids in written]
        return cls(next(own), words, store(train), store(valid), [store(test) for _, test in tasks])

    @property
    def answers(self) -> int:
        return len(self.words)

    @property
    def sentences(self) -> int:
        """Of the longest story."""
        return self.train.story_NS.shape[1]


def begun(groups: list[Questions], config: Any, settings: Settings, options: argparse.Namespace) -> Training:
    """All restarts of all groups as one batch of models, before their first step."""
    vocabulary, answers = (max(getattr(group, name) for group in groups) for name in ("vocabulary", "answers"))
    models, at, seeds = [], [], []
    for group, questions in enumerate(groups):
        words = tuple(questions.words) + (0,) * (answers - questions.answers)
        head = Answers(labels=tuple(map(str, range(answers))), tied=options.tied, words=words if options.tied else ())
        for seed in range(1, options.restarts + 1):
            torch.manual_seed(seed)
            models.append(build("memory", config, (vocabulary,), head))
            at.append(group)
            seeds.append(seed)
    members = Members(models, at, [group.answers for group in groups], options.device)
    valid = Group([group.valid for group in groups], members)
    return Training(members, [group.train for group in groups], valid, settings, seeds)


def alike(groups: list[Questions]) -> list[list[int]]:
    """The numbers of the groups in lots of about as long stories: members of one batch are padded to the longest."""
    lots: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        lots.setdefault(group.sentences.bit_length() // 2, []).append(number)
    return list(lots.values())


def row_of(task: int, name: str, wrong: Tensor, errors: Tensor) -> dict[str, Any]:
    """A task's errors in training and in the test, a value a restart: the restart that is best in training counts."""
    best = int(wrong.argmin())
    return {
        "task": task, "name": name, "restart": best + 1, "training_error": round(float(wrong[best]), 4),
        "error": round(float(errors[best]), 4), "each": [round(float(error), 4) for error in errors],
    }  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """Errors of a model's restarts in training and validation, and in the test of each of its tasks."""

    train: Tensor
    valid: Tensor
    tests: list[Tensor]


def judged(groups: list[Questions], config: Any, settings: Settings, options: argparse.Namespace) -> list[Judged]:
    """All restarts of all groups, trained as one batch of models."""
    training, began = begun(groups, config, settings, options), time.perf_counter()
    members = training.members
    training.run(lambda line: print(f"{line} ({time.perf_counter() - began:.0f} s)", flush=True))
    tests = Group([store for group in groups for store in group.tests], members)
    owner = [number for number, group in enumerate(groups) for _ in group.tests]
    lot_MG = [members.judged(tests, torch.full_like(members.group_M, at))[0] for at in range(len(owner))]
    train_M, valid_M = (members.judged(questions)[0] for questions in (training.questions, training.valid))
    found = []
    for number in range(len(groups)):
        mine = slice(number * options.restarts, (number + 1) * options.restarts)
        own = [errors_M[mine] for errors_M, whose in zip(lot_MG, owner, strict=True) if whose == number]
        found.append(Judged(train_M[mine], valid_M[mine], own))
    return found


def trained(part: Part, options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row a task, and what there is to say of all."""
    config = change(SIZES[part.size], [*MODEL, *options.set])
    settings = change(part.settings, options.train)
    settings = settings if options.epochs is None else replace(settings, epochs=options.epochs)
    tasks = read_tasks(part.amount, options.tasks)
    halves = [(train, test) for _, train, test in tasks.values()]
    groups = [Questions.of(halves, config.memory)] if part.joint else [Questions.of([h], config.memory) for h in halves]
    found: dict[int, Judged] = {}
    began = time.perf_counter()
    for lot in alike(groups):
        found |= dict(zip(lot, judged([groups[at] for at in lot], config, settings, options), strict=True))
    seconds = time.perf_counter() - began
    rows = []
    for number, (task, (name, *_)) in enumerate(tasks.items()):
        model, test = (0, number) if part.joint else (number, 0)
        rows.append(row_of(task, name, found[model].train, found[model].tests[test]))
    valid = [float(model.valid[int(model.train.argmin())]) for model in found.values()]
    case = {
        "questions": part.amount, "hops": config.hops, "width": config.width, "tying": config.tying.name,
        "query": config.query.name, "tied_head": options.tied, "empty": config.empty, **dataclasses.asdict(settings),
        "restarts": options.restarts,
    }  # fmt: skip
    errors = [row["error"] for row in rows]
    about = {
        "case": case, "seconds": round(seconds, 1), "mean_error": round(sum(errors) / len(errors), 4),
        "validation_error": round(sum(valid) / len(valid), 4),
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
    parser.add_argument("--untied", dest="tied", action="store_false", help="the head's rows are not the last table's")
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
        print(
            f"{name}: mean error {about['mean_error']:.2%} of {about['tasks']} tasks, {about['seconds']:.0f} s; "
            f"validation {about['validation_error']:.2%}"
        )


if __name__ == "__main__":
    main()
