"""A transcriber: recordings in; what was said, and when, out.

A recording is heard window by window (30 s of Whisper). The timestamps that the model writes say where a window's last
whole segment ends: the next window starts there. A window whose text repeats itself, or that the model finds
improbable, is decoded anew at a higher temperature. A window is given the text of those before it (Radford et al.
2023, 4.5).

B windows, N samples, M mel bands, F frames, S places, D width, V vocabulary.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from headway.card import Card
from headway.errors import InputError, Notice, nearest, refuse
from headway.generate.listening import Listening
from headway.generate.one_or_many import one_or_many
from headway.generate.segments import Segment, Transcript, Word, cut
from headway.generate.sounds import is_sound
from headway.generate.speech import Speaking, SpeechTokens
from headway.generate.spelling import HALF
from headway.generate.word_times import UNSPACED, grouped, moved, pauses, spoken, unspaced
from headway.plain import from_plain, to_plain
from headway.processors.sound import Spectrogram

FREE = 0.5  # temperature: a text that was drawn above it misleads the windows behind it


@dataclass
class Hearing:
    """One recording while it is transcribed. prompt: tokens that its windows are given; previous: the text before
    its next window, which is given behind them; seek: the frame that this window starts with."""

    number: int
    listening: Listening
    prompt: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    seek: int = 0
    language: str = ""
    segments: list[Segment] = field(default_factory=list)
    patience: int = 0  # frames of a window that is looked at; 0: of a full one


@dataclass(frozen=True)
class Decoded:
    """What a window says. logprob: the mean of its tokens. failed: neither probable nor varied enough."""

    ids: list[int]
    logprob: float
    temperature: float
    compression: float
    silence: float
    failed: bool
    silent: bool


class TextTranscriber:
    """Abstract. Recordings in, text out; how a window is encoded and its text searched for is left open."""

    name: str
    at_once: int = 4  # recordings that are heard side by side

    def __init__(self, card: Card, processors: dict[str, Any]) -> None:
        self.card, self.processor, self.tokenizer = card, processors["sound"], processors["text"].tokenizer
        self.tokens = SpeechTokens.of(self.tokenizer, card.symbols, card.writes.size)
        self.speaking = from_plain(Speaking, card.search, "search") if card.search else Speaking()
        self.rate, self.hop, self.frames = (getattr(self.processor.config, name) for name in ("rate", "hop", "frames"))
        self.moments, self.context = int(card.config.places), int(card.config.max_length)

    def encode(self, windows: Sequence[Spectrogram]) -> Any:
        """What the encoder makes of each window."""
        raise NotImplementedError

    def first(self, heard: Any) -> tuple[list[float], list[dict[str, float]]]:
        """How probable silence is in each window, and each language: both by what follows the start."""
        raise NotImplementedError

    def written(
        self, heard: Sequence[Any], openings: Sequence[list[int]], speaking: Speaking, temperature: float = 0.0
    ) -> list[tuple[list[int], float]]:
        """The tokens behind each opening, without the end, and their mean log-probability."""
        raise NotImplementedError

    def align(
        self, heard: Any, opening: Sequence[int], ids: Sequence[int], frames: int, heads: Sequence[Sequence[int]] = ()
    ) -> Any:
        """The places at which each of these ids begins, and the one at which the last ends."""
        raise NotImplementedError

    @one_or_many(is_sound)
    def transcribe(
        self, recordings: Sequence[Any], *, batch: int | None = None,
        progress: Callable[[int], None] | None = None, **settings: Any,
    ) -> list[Transcript]:  # fmt: skip
        """What is said in each recording. Keywords change the search: `language="de"`, `beam=5`, … (see `Speaking`).
        `batch` bounds the recordings that are heard side by side; `progress` is called with the number done so far."""
        speaking = self.settings(settings)
        found: dict[int, Transcript] = {}
        prompt = self.prompt(speaking)
        waiting = [Hearing(number, Listening(one, self.rate), prompt) for number, one in enumerate(recordings)][::-1]
        open_now: list[Hearing] = []
        while waiting or open_now:
            while waiting and len(open_now) < (batch or self.at_once):
                open_now.append(waiting.pop())
            for hearing in self._next(open_now, speaking):
                found[hearing.number] = self._transcript(hearing)
                open_now.remove(hearing)
                if progress:
                    progress(len(found))
        return [found[number] for number in range(len(recordings))]

    def stream(self, recording: Any, every: float | None = None, **settings: Any) -> Iterator[Segment]:
        """The segments of one recording as they come. every: seconds after which what was heard since the last whole
        segment is looked at, before its window is full; None: windows are full, but for the last."""
        speaking = self.settings(settings)
        hearing, reported, done = Hearing(0, Listening(recording, self.rate), self.prompt(speaking)), 0, False
        step = self.frames if every is None or not self.tokens.timed(speaking) else int(every * self.rate / self.hop)
        hearing.patience = step = max(1, min(step, self.frames))
        while not done:
            before = hearing.seek
            done = bool(self._next([hearing], speaking))
            hearing.patience = step if hearing.seek > before else min(hearing.patience + step, self.frames)
            yield from hearing.segments[reported:]
            reported = len(hearing.segments)

    def say(self, windows: Sequence[Spectrogram], opening: Sequence[int], speaking: Speaking) -> list[str]:
        """The text of spectrograms, each of one window, as it is written at the first temperature."""
        x_BSD = self.encode(windows)
        found = self.written(list(x_BSD), [list(opening)] * len(windows), speaking, speaking.temperatures[0])
        return [self.text(ids).strip() for ids, _ in found]

    def detect(self, recording: Any) -> dict[str, float]:
        """How probable each language is in the first window, the most probable first."""
        refuse(not self.tokens.languages, "this model was trained in one language: there is none to detect")
        window_N = Listening(recording, self.rate).window(0, self.frames * self.hop)
        _, [shares] = self.first(self.encode([self.spectrogram(window_N)]))
        return dict(sorted(shares.items(), key=lambda pair: -pair[1]))

    def settings(self, settings: dict[str, Any]) -> Speaking:
        speaking: Speaking = from_plain(Speaking, to_plain(self.speaking) | settings, "speech")
        if speaking.language and speaking.language not in self.tokens.languages and self.tokens.languages:
            known = nearest(speaking.language, self.tokens.languages)
            raise InputError(f"this model knows no language '{speaking.language}'{known}")
        if speaking.task != "transcribe" and speaking.task not in self.tokens.tasks:
            raise InputError(f"this model does not {speaking.task}: it was trained to transcribe alone")
        refuse(speaking.prompt and self.tokens.previous is None, "this model takes no prompt: no token marks it")
        return speaking

    def prompt(self, speaking: Speaking) -> list[int]:
        """The tokens of the prompt; the last of them, where it is longer than fits."""
        if not speaking.prompt:
            return []
        ids = [int(i) for i in self.tokenizer.encode(f" {speaking.prompt.strip()}")]
        special = self.tokenizer.tokens(i for i in ids if self.tokenizer.is_special(i))
        refuse(special, f"the prompt has special tokens in it ({', '.join(special)}): leave them out")
        kept = self._latest(ids)
        if len(kept) < len(ids):
            line = f"the prompt has {len(ids)} tokens, this model takes {len(kept)}: its beginning is left out"
            warnings.warn(line, Notice, stacklevel=3)
        return kept

    def _latest(self, ids: list[int]) -> list[int]:
        """What a window is given of the text before it: half of the context, less one for the mark before it."""
        return ids[max(0, len(ids) - (self.context // 2 - 1)) :]

    def spectrogram(self, samples_N: Any) -> Spectrogram:
        """(1, M, F) of a window, filled up with silence."""
        found: Spectrogram = self.processor.encode([samples_N])[0]
        return found

    def _next(self, hearings: Sequence[Hearing], speaking: Speaking) -> list[Hearing]:
        """The next window of each recording; those that have no further one."""
        size = self.frames * self.hop
        heard = [(one, one.listening.window(one.seek * self.hop, one.patience * self.hop or size)) for one in hearings]
        done = [one for one, window_N in heard if not len(window_N)]
        heard = [(one, window_N) for one, window_N in heard if len(window_N)]
        if heard:
            x_BSD = self.encode([self.spectrogram(window_N) for _, window_N in heard])
            silences, languages = self.first(x_BSD)
            for (one, _), shares in zip(heard, languages, strict=True):
                one.language = one.language or speaking.language or max(shares, key=shares.__getitem__, default="")
            openings = [self._opening(one, speaking) for one, _ in heard]
            found = self.decode(x_BSD, openings, silences, speaking)
            for (one, window_N), x_SD, said in zip(heard, x_BSD, found, strict=True):
                before = len(one.segments)
                frames, begin = -(-len(window_N) // self.hop), one.seek
                self._take(one, said, frames, speaking)
                if speaking.words:
                    quiet = pauses(window_N, self.rate, self.hop) if speaking.pauses else []
                    new = self._with_words(one.segments[before:], x_SD, begin, frames, quiet, one, speaking)
                    one.segments[before:] = new
        return [*done, *(one for one, _ in heard if not one.listening.more(one.seek * self.hop))]

    def _opening(self, hearing: Hearing, speaking: Speaking) -> list[int]:
        before = self._latest([*hearing.prompt, *hearing.previous])
        return self.tokens.behind(before, self.tokens.opening(speaking, hearing.language))

    def _take(self, hearing: Hearing, said: Decoded, frames: int, speaking: Speaking) -> None:
        """The segments of a window, and where the next one starts."""
        seconds = self.hop / self.rate
        if said.silent:
            hearing.seek += frames
            return
        timed = self.tokens.first_time if self.tokens.timed(speaking) else None
        found, used = cut(said.ids, timed, frames, seconds)
        if used == frames == hearing.patience < self.frames:
            return  # more is to come, and no segment has ended
        begin, whole, before = hearing.seek * seconds, frames * seconds, len(hearing.segments)
        for start, end, ids in found:
            text, start, end = self.text(ids), min(start, whole), min(end, whole)  # it may think of silence behind
            if text.strip():
                hearing.segments.append(
                    Segment(
                        round(begin + start, 2),
                        round(begin + end, 2),
                        text,
                        ids,
                        said.logprob,
                        said.silence,
                        said.temperature,
                        said.compression,
                    )
                )
        hearing.seek += used
        new = [i for segment in hearing.segments[before:] for i in segment.ids]
        kept = speaking.previous and said.temperature <= FREE
        hearing.previous = self._latest([*hearing.previous, *new]) if kept else []

    def _with_words(
        self, segments: list[Segment], x_SD: Tensor, begin: int, frames: int, quiet: Sequence[tuple[float, float]],
        hearing: Hearing, speaking: Speaking,
    ) -> list[Segment]:  # fmt: skip
        """Segments of one window, which begins at this frame, with the times of their words, none of them behind the
        beginning of the next window. quiet: its pauses."""
        said = [self.plain(segment.ids) for segment in segments]
        if not any(said):
            return segments
        groups = [self.words(ids, hearing.language, speaking) for ids in said]
        every = [word for words in groups for word in words]
        spans = iter(self.spans(every, x_SD, frames, quiet, hearing.language, speaking))
        offset, last = (at * self.hop / self.rate for at in (begin, hearing.seek))

        def timed(ids: list[int], span: tuple[float, float]) -> Word:
            return Word(self.text(ids).strip(), *(round(min(offset + time, last), 2) for time in span))

        return [
            replace(segment, words=[one for ids in words if (one := timed(ids, next(spans))).text])
            for segment, words in zip(segments, groups, strict=True)
        ]

    def spans(
        self, words: Sequence[list[int]], x_SD: Tensor, frames: int, quiet: Sequence[tuple[float, float]],
        language: str, speaking: Speaking,
    ) -> list[tuple[float, float]]:  # fmt: skip
        """When each word of a window begins and ends, in seconds from its beginning. quiet: its pauses."""
        opening = self.tokens.opening(replace(speaking, timestamps=False), language)
        starts = self.align(x_SD, opening, [i for word in words for i in word], frames, speaking.alignment_heads)
        firsts = np.cumsum([0, *(len(word) for word in words)])
        return moved((starts[firsts] * self._place).tolist(), quiet)

    def words(self, ids: list[int], language: str, speaking: Speaking) -> list[list[int]]:
        """The ids of each word."""
        if language not in UNSPACED or speaking.task == "translate":
            _, owner = self.tokenizer.words(ids)
            return grouped(ids, spoken(owner, [self.text([i]) for i in ids]))
        runs = grouped(ids, self.tokenizer.characters(ids))
        words = grouped(runs, unspaced([self.text(run) for run in runs]))
        return [[i for run in word for i in run] for word in words]

    @property
    def _place(self) -> float:
        """Seconds of a place of the encoder."""
        return self.frames / self.moments * self.hop / self.rate

    def plain(self, ids: Sequence[int]) -> list[int]:
        """Without special tokens and timestamps."""
        times = self.tokens.first_time
        return [i for i in ids if (times is None or i < times) and not self.tokenizer.is_special(i)]

    def text(self, ids: Sequence[int]) -> str:
        """Without half a character at its end."""
        return str(self.tokenizer.decode(self.plain(ids))).rstrip(HALF)

    def _transcript(self, hearing: Hearing) -> Transcript:
        text = "".join(segment.text for segment in hearing.segments).strip()
        return Transcript(text, hearing.language, hearing.segments)

    def decode(
        self, heard: Any, openings: Sequence[list[int]], silences: Sequence[float], speaking: Speaking
    ) -> list[Decoded]:
        """What encoded windows say, at the first temperature that gives a text which does not fail, or at the last."""
        found: dict[int, Decoded] = {}
        waiting = list(range(len(heard)))
        for temperature in speaking.temperatures:
            texts = self.written([heard[at] for at in waiting], [openings[at] for at in waiting], speaking, temperature)
            for at, (ids, logprob) in zip(waiting, texts, strict=True):
                found[at] = self._judged(ids, logprob, temperature, silences[at], speaking)
            waiting = [at for at in waiting if found[at].failed and not found[at].silent]
            if not waiting:
                break
        return [found[at] for at in range(len(heard))]

    def _judged(
        self, ids: list[int], logprob: float, temperature: float, silence: float, speaking: Speaking
    ) -> Decoded:
        text = self.text(ids).encode("utf-8")
        ratio = len(text) / len(zlib.compress(text)) if text else 0.0
        improbable = speaking.logprob is not None and logprob < speaking.logprob
        repeated = speaking.compression is not None and ratio > speaking.compression
        silent = improbable and speaking.no_speech is not None and silence > speaking.no_speech
        return Decoded(ids, logprob, temperature, ratio, silence, improbable or repeated, silent)
