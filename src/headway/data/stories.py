"""Stories with questions: the format of bAbI (Weston et al. 2016), plain lines, and batches of both.

    1 Mary got the milk there.
    2 Mary travelled to the hallway.
    3 Where is the milk?	hallway	1 2

A line is a statement, or a question, a tab and its answer, and behind another tab the numbers of the lines that it
follows from. A story begins with the number 1; lines without numbers are stories too, with blank lines between them. A
question without an answer ends with a question mark.

N questions, B rows, S sentences, W words of a sentence, Q words of a question, U different sentences, K random numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, column
from headway.data.batches import Ints, permutation, raw_words
from headway.data.labelled import LabelBatch, padded
from headway.data.readers import NOT_TEXT, bare_suffix
from headway.data.split import hold_out_by_hash
from headway.data.table import text_lines
from headway.errors import InputError, refuse

NUMBERED = re.compile(r"(\d+)\s+(.*)", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.?!])\s+")
WANTED = "a question, a tab and its answer"


class Asked(NamedTuple):
    """A question with the statements before it, the earliest first. support: which of them the answer follows from,
    counted from 0. place: file and line. task: the file's name without its end. number: of the story in its file."""

    story: tuple[str, ...]
    question: str
    answer: str = ""
    support: tuple[int, ...] = ()
    place: str = ""
    task: str = ""
    number: int = 0


def read_stories(files: Sequence[str | Path]) -> list[Asked]:
    """The questions of all files with their answers, in order."""
    found: list[Asked] = []
    for file in map(str, files):
        refuse(bare_suffix(Path(file)) in NOT_TEXT, f"cannot read {file} as stories: give lines of text, {WANTED}")
        asked = list(parse(text_lines(file), file))
        refuse(not asked, f"{file}: there is no question in it; one is {WANTED}")
        found += asked
    return found


def parse(rows: Iterable[str], name: str, answered: bool = True) -> Iterator[Asked]:
    """The questions of some lines. `answered`: each must have an answer."""
    story, numbered = _Story(0), None
    task = Path(name).name.partition(".")[0].removesuffix("_train").removesuffix("_test")
    for line, row in enumerate(rows, 1):
        where = f"{name}, line {line}"
        if not row.strip():
            story = _Story(story.number + 1)
            continue
        found = NUMBERED.match(row)
        numbered = (found is not None and found[1] == "1") if numbered is None else numbered
        if numbered:
            if found is None:
                raise InputError(f"{where}: no number; the lines of a story are numbered from 1")
            number, row = found[1], found[2]
            story = _Story(story.number + 1) if number == "1" else story
            if number != str(story.lines + 1):
                raise InputError(f"{where}: number {number[:20]}, expected {story.lines + 1} (or 1 for a new story)")
        asked = story.add(row, where, task, answered)
        if asked is not None:
            yield asked


@dataclass
class _Story:
    """The statements so far. place_of: of the line with a number, among the statements."""

    number: int
    statements: list[str] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)
    lines: int = 0

    def add(self, row: str, where: str, task: str, answered: bool) -> Asked | None:
        """The question in this line, if it is one."""
        self.lines += 1
        text, *more = (part.strip() for part in row.split("\t"))
        if not more and not text.endswith("?"):
            self.place_of[self.lines] = len(self.statements)
            self.statements.append(text)
            return None
        refuse(len(more) > 2, f"{where}: {len(more)} tabs; expected {WANTED}, a tab and line numbers")
        refuse(not plain(text), f"{where}: a question without words")
        refuse(not self.statements, f"{where}: a question with no statement before it in its story")
        answer = more[0] if more else ""
        refuse(answered and not answer, f"{where}: a question without an answer; expected {WANTED}")
        support = tuple(self._place(word, where) for word in (more[1] if len(more) == 2 else "").split())
        return Asked(tuple(self.statements), text, answer, support, where, task, self.number)

    def _place(self, word: str, where: str) -> int:
        place = self.place_of.get(int(word)) if word.isdecimal() and len(word) < 9 else None
        if place is None:
            raise InputError(f"{where}: '{word[:20]}' is no number of a statement before it in its story")
        return place


def lines_in(text: str) -> list[str]:
    """The lines of a text; of a single line its sentences."""
    rows = text.splitlines()
    return SENTENCE_END.split(text.strip()) if len(rows) == 1 and "\t" not in text else rows


def plain(sentence: str) -> str:
    """Without the mark at its end, which is no word."""
    return sentence.strip().rstrip(".?! ")


def hold_out_stories(asked: Sequence[Asked], share: float) -> tuple[list[Asked], list[Asked]]:
    """The training and the held-out questions, chosen by a hash of their whole story: all of its questions stay
    together."""
    whole: dict[tuple[str, int], str] = {}
    for one in asked:
        told = " ".join((*one.story, one.question))
        whole[one.task, one.number] = max(whole.get((one.task, one.number), ""), told, key=len)
    return hold_out_by_hash(asked, [whole[one.task, one.number] for one in asked], share, "questions")


@dataclass(frozen=True)
class StoryInputs(Batch):
    """words_BSW: of each sentence, the earliest first, 0 where there is no word. times_BS: 1 for the last sentence
    before the question, 2 for the one before it …, 0 where there is no sentence."""

    words_BSW: Tensor = column()
    times_BS: Tensor = column(empty=1)
    question_BQ: Tensor = column()


def times(counts_N: Tensor, slots: int) -> Tensor:
    """(N, S): the time of each sentence, for so many in each story."""
    return (counts_N[..., None] - torch.arange(slots, device=counts_N.device)).clamp(min=0)


def noisy_times(times_NS: Tensor, counts_N: Tensor, draws_NK: Tensor, share: float, memory: int) -> Tensor:
    """With empty memories between them that take up times, up to `share` of the sentences, in random places; no time is
    above `memory` (Sukhbaatar et al. 2015, 4.1, random noise). draws_NK: random numbers from 0 on."""
    most_N = (counts_N * share).ceil().long()
    blanks_N = draws_NK[..., 0] % (most_N + 1)
    place_NK = draws_NK[..., 1:] % (counts_N[..., None] + 1)  # how many sentences come after each
    used_NK = torch.arange(place_NK.shape[-1], device=place_NK.device) < blanks_N[..., None]
    later_NSK = (times_NS[..., :, None] > place_NK[..., None, :]) & used_NK[..., None, :]
    return torch.where(times_NS > 0, (times_NS + later_NSK.sum(-1)).clamp(max=memory), 0)


def draws_for(memory: int, share: float) -> int:
    """K of `noisy_times`."""
    return 1 + int(np.ceil(memory * share))


class StoryStore:
    """Questions as numbers: every different sentence once, and of each question which of them its story has.

    memory: only the last so many sentences count. labels: of each question, counted from 0, IGNORED for an answer that
    the model does not have.
    """

    def __init__(
        self, asked: Sequence[Asked], labels: Sequence[int], encode: Callable[[list[str]], list[list[int]]], memory: int
    ) -> None:
        kept = [one.story[-memory:] for one in asked]
        number_of: dict[str, int] = {"": 0}
        for one, story in zip(asked, kept, strict=True):
            for sentence in (*story, one.question):
                number_of.setdefault(sentence, len(number_of))
        ids = encode([plain(sentence) for sentence in number_of])
        self.memory = memory
        self.ids_UW = padded(ids, max(1, *map(len, ids)), 0)
        self.counts_N = torch.tensor([len(story) for story in kept])
        rows = [[number_of[sentence] for sentence in story] for story in kept]
        self.story_NS = padded(rows, int(self.counts_N.max()), 0)
        self.question_N = torch.tensor([number_of[one.question] for one in asked])
        self.labels_N = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.ids_UW, self.story_NS, self.question_N, self.labels_N):
            digest.update(part.numpy().tobytes())
        return digest.hexdigest()

    def inputs(self, examples: Tensor) -> StoryInputs:
        """Of these questions, without noise."""
        story_BS, slots = self.story_NS[examples], self.story_NS.shape[1]
        return StoryInputs(
            self.ids_UW[story_BS], times(self.counts_N[examples], slots), self.ids_UW[self.question_N[examples]]
        )


class StoryBatches:
    """Endless batches, epoch after epoch, each in a new order: a function of the questions, the seed and the step.

    noise: see `noisy_times`. A shuffled epoch leaves out the questions that do not fill its last batch: a loss that is
    summed would count less there.
    """

    def __init__(self, store: StoryStore, rows: int, seed: int, shuffle: bool = True, noise: float = 0.0) -> None:
        self.store, self.rows, self.seed, self.shuffle, self.noise = store, min(rows, len(store)), seed, shuffle, noise
        self.per_epoch = len(store) // self.rows if shuffle else -(-len(store) // self.rows)
        self._plan: tuple[int, tuple[Ints, NDArray[np.int64]]] | None = None

    def plan(self, epoch: int) -> tuple[Ints, NDArray[np.int64]]:
        """The order of an epoch's questions, and the random numbers of each."""
        held = self._plan  # once: another thread may be at the next epoch
        if held is not None and held[0] == epoch:
            return held[1]
        count, draws = len(self.store), draws_for(self.store.memory, self.noise)
        order = permutation(count, self.seed, epoch, 0) if self.shuffle else np.arange(count)
        drawn_NK = (raw_words(count * draws, self.seed, epoch, 1) >> np.uint64(33)).astype(np.int64).reshape(-1, draws)
        self._plan = epoch, (order, drawn_NK)
        return order, drawn_NK

    def batch(self, step: int) -> LabelBatch:
        """The batch of training step `step`, counted from 0 over all epochs."""
        epoch, at = divmod(step, self.per_epoch)
        order, drawn_NK = (part[at * self.rows : (at + 1) * self.rows] for part in self.plan(epoch))
        examples, store = torch.from_numpy(order), self.store
        inputs = store.inputs(examples)
        if self.noise:
            counts_B, drawn_BK = store.counts_N[examples], torch.from_numpy(drawn_NK)
            times_BS = noisy_times(inputs.times_BS, counts_B, drawn_BK, self.noise, store.memory)
            inputs = StoryInputs(inputs.words_BSW, times_BS, inputs.question_BQ)
        return LabelBatch(inputs, store.labels_N[examples], examples=tuple(order.tolist()))

    def epoch(self, epoch: int = 0) -> Iterator[LabelBatch]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))


def answers_in(asked: Sequence[Asked]) -> tuple[str, ...]:
    return tuple(sorted({one.answer for one in asked}))


def numbered(asked: Sequence[Asked], answers: Sequence[str]) -> list[int]:
    """The number of each answer, IGNORED for one that is not among them."""
    number_of = {answer: number for number, answer in enumerate(answers)}
    return [number_of.get(one.answer, IGNORED) for one in asked]
