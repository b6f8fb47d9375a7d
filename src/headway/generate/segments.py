"""Transcripts: what was said, in segments with their times; as SRT and as WebVTT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.generate.speech import STEP

Stretch = tuple[float, float, list[int]]  # from, to (seconds), and the ids


@dataclass(frozen=True)
class Word:
    """When a word is said, in seconds, and the least probable of its tokens."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Segment:
    """Some words that belong together. start, end: seconds. logprob: the mean log-probability of the tokens of its
    window; silence: how probable it is that nothing is said there; temperature: at which it was written; compression:
    how much shorter zlib makes it."""

    start: float
    end: float
    text: str
    ids: list[int]
    logprob: float
    silence: float
    temperature: float
    compression: float
    words: list[Word] = field(default_factory=list)


@dataclass(frozen=True)
class Transcript:
    """All that is said in a recording. language: "" where the model knows one alone."""

    text: str
    language: str
    segments: list[Segment]


def cut(ids: Sequence[int], first_time: int | None, frames: int, seconds: float) -> tuple[list[Stretch], int]:
    """The segments that the timestamps in `ids` delimit, and how many frames are heard then. `frames`: of the window,
    each of so many seconds; what follows the last pair of timestamps is heard again in the next window."""
    whole = frames * seconds
    if first_time is None:
        return [(0.0, whole, list(ids))], frames
    times = [(i - first_time) * STEP if i >= first_time else None for i in ids]
    ends = [at + 1 for at in range(len(ids) - 1) if times[at] is not None and times[at + 1] is not None]
    alone = len(ids) >= 2 and times[-2] is None and times[-1] is not None
    if not ends:
        last = [time for time in times if time is not None]
        return [(0.0, last[-1] if last and last[-1] > 0 else whole, list(ids))], frames
    if alone:  # nothing is said behind it
        ends.append(len(ids))
    found: list[Stretch] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        start, stop = times[begin] or 0.0, times[end - 1]
        found.append((start, whole if stop is None else stop, list(ids[begin:end])))
    used = frames if alone else round(found[-1][1] / seconds)
    return found, used


def srt(segments: Sequence[Segment]) -> str:
    """SubRip: numbered, with a comma before the milliseconds."""
    blocks = [
        f"{number}\n{clock(one.start, ',')} --> {clock(one.end, ',')}\n{shown(one.text)}\n"
        for number, one in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def vtt(segments: Sequence[Segment]) -> str:
    """WebVTT."""
    blocks = [f"{clock(one.start, '.')} --> {clock(one.end, '.')}\n{shown(one.text)}\n" for one in segments]
    return "\n".join(["WEBVTT\n", *blocks])


def shown(text: str) -> str:
    """On one line; an arrow would be read as the times of a segment."""
    return " ".join(text.split()).replace("-->", "->")


def clock(seconds: float, point: str) -> str:
    millis = round(seconds * 1000)
    minutes, millis = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{millis // 1000:02}{point}{millis % 1000:03}"
