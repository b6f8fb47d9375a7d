"""Questions about pictures, with their answers, from files.

A .jsonl has an object a line: "picture", a file beside it, "question", and "answer" or several "answers". A .npz has
the arrays `pictures` (N, H, W, 3) or (N, H, W), of bytes, and `questions` (M), `answers` (M) and `rows` (M), the number
of the picture that each is about.

N pictures, M questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.examples import arrays_in
from headway.data.image_files import Bytes
from headway.data.readers import bare_suffix, lines, must_be_there, records, text_of
from headway.data.split import hold_out_by_hash
from headway.errors import InputError, refuse

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PictureQuestions:
    """picture_M: of each question its picture. answers: any of a question's is right. names: file and line."""

    pixels_NCHW: Bytes
    picture_M: Ints
    questions: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.questions)

    def those(self, at: Sequence[int]) -> PictureQuestions:
        """Some of the questions, with their pictures."""
        kept_N, picture_M = np.unique(self.picture_M[list(at)], return_inverse=True)
        questions, names = (tuple(part[i] for i in at) for part in (self.questions, self.names))
        answers = tuple(self.answers[i] for i in at)
        return PictureQuestions(self.pixels_NCHW[kept_N], picture_M.astype(np.int64), questions, answers, names)


def read_picture_questions(places: Sequence[str | Path], read: Callable[[Any], Bytes]) -> PictureQuestions:
    """Those of all files, in order. read: one picture to pixels (C, H, W)."""
    parts = [(_of_arrays if Path(place).suffix == ".npz" else _of_lines)(Path(place), read) for place in places]
    starts = np.cumsum([0, *(len(part.pixels_NCHW) for part in parts[:-1])])
    return PictureQuestions(
        np.concatenate([part.pixels_NCHW for part in parts]),
        np.concatenate([part.picture_M + start for part, start in zip(parts, starts, strict=True)]),
        *(tuple(one for part in parts for one in getattr(part, name)) for name in ("questions", "answers", "names")),
    )


def hold_out_picture_questions(found: PictureQuestions, share: float) -> tuple[PictureQuestions, PictureQuestions]:
    """The training and the held-out questions, chosen by a hash of their pictures: all of one picture alike."""
    contents = [found.pixels_NCHW[at].tobytes() for at in found.picture_M]
    train, held = hold_out_by_hash(range(len(found)), contents, share, "questions about pictures")
    return found.those(train), found.those(held)


def _of_lines(place: Path, read: Callable[[Any], Bytes]) -> PictureQuestions:
    must_be_there(place)
    refuse(bare_suffix(place) != ".jsonl", f"cannot read {place} as questions about pictures: give a .jsonl or a .npz")
    pictures: dict[str, int] = {}
    pixels, found = list[Bytes](), list[tuple[int, str, tuple[str, ...], str]]()
    for where, record in records(lines(place), str(place), "'picture', 'question' and 'answer'"):
        file = text_of(record, "picture", where)
        if file not in pictures:
            pictures[file] = len(pixels)
            try:
                pixels.append(read(place.parent / file))
            except InputError as error:
                raise InputError(f"{where}: {error}") from error
        question = text_of(record, "question", where)
        refuse(not question.strip(), f"{where}: the question is empty")
        found.append((pictures[file], question, _answers(record, where), where))
    refuse(not found, f"{place}: there is no question in it")
    numbers, questions, answers, names = zip(*found, strict=True)
    return PictureQuestions(np.stack(pixels), np.array(numbers, np.int64), questions, answers, names)


def _answers(record: dict[str, Any], where: str) -> tuple[str, ...]:
    given = record.get("answers")
    if given is None:
        answers: tuple[str, ...] = (text_of(record, "answer", where),)
    else:
        refuse(not isinstance(given, list) or not given, f"{where}: 'answers' must be a list of texts")
        answers = tuple(text_of({"answers": one}, "answers", where) for one in given)
    refuse(not all(one.strip() for one in answers), f"{where}: an answer is empty")
    return answers


def _of_arrays(place: Path, read: Callable[[Any], Bytes]) -> PictureQuestions:
    arrays = arrays_in(place)
    for name in ("pictures", "questions", "answers", "rows"):
        refuse(name not in arrays, f"{place} has no array '{name}' (it has {', '.join(arrays) or 'none'})")
    pictures, rows_M = arrays["pictures"], arrays["rows"]
    bytes_of_pictures = pictures.dtype == np.uint8 and pictures.ndim in (3, 4)
    refuse(not bytes_of_pictures, f"{place}: pictures must be bytes, (N, H, W, 3) or (N, H, W), not {pictures.dtype}")
    count, other = len(pictures), [name for name in ("questions", "answers") if arrays[name].shape != rows_M.shape]
    refuse(other or rows_M.ndim != 1, f"{place}: questions, answers and rows must have the same length")
    wrong = rows_M.dtype.kind not in "iu" or (rows_M < 0).any() or (rows_M >= count).any()
    refuse(wrong, f"{place}: rows must name pictures from 0 to {count - 1}")
    questions, answers = (tuple(map(str, arrays[name].tolist())) for name in ("questions", "answers"))
    for number, pair in enumerate(zip(questions, answers, strict=True)):
        refuse(not all(text.strip() for text in pair), f"{place}, question {number}: a question or an answer is empty")
    refuse(not questions, f"{place}: there is no question in it")
    names = tuple(f"{place}, question {number}" for number in range(len(questions)))
    pixels_NCHW = np.stack([read(one) for one in pictures])
    return PictureQuestions(pixels_NCHW, rows_M.astype(np.int64), questions, tuple((one,) for one in answers), names)
