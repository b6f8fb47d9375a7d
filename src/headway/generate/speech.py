"""How recordings are transcribed: the settings, and the special tokens of a vocabulary of speech."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.errors import InputError, nearest, refuse
from headway.text.tokenizer import Symbols

LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
STEP = 0.02  # seconds from one timestamp to the next


@dataclass(frozen=True)
class Speaking:
    """How the text of a recording is searched for (Radford et al. 2023, 4.5).

    language: a code such as en; "" where it is to be detected. task: the text in its own language, or in English.
    timestamps: the model writes when each segment begins and ends. beam, length_penalty: of the search at temperature
    0. temperatures: where a text fails, it is drawn at the next of these. compression: it fails where zlib makes it
    shorter by more than this factor; logprob: where the mean log-probability of a token is below this; no_speech: a
    failed window whose probability of silence is above this is silent (None: not asked). suppress: ids that are never
    written; begin_suppress: nor as the first token. latest_start: the greatest first timestamp, in steps of 0.02 s
    (None: any). alignment_heads: (layer, head) of the cross-attention that word times are from (none: all heads of the
    upper half of the layers). most: tokens of a window (0: as many as fit). seed: of what is drawn. words: when
    each word is said; pauses: its times move to the pauses that are near them. previous: a window is given the text
    before it; prompt: what every window is given before that, such as names as they are spelled.
    """

    language: str = ""
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: bool = True
    beam: int = 1
    length_penalty: float = 1.0
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    compression: float | None = 2.4
    logprob: float | None = -1.0
    no_speech: float | None = 0.6
    suppress: tuple[int, ...] = ()
    begin_suppress: tuple[int, ...] = ()
    latest_start: int | None = None
    alignment_heads: tuple[tuple[int, ...], ...] = ()
    most: int = 0
    seed: int = 0
    words: bool = False
    pauses: bool = True
    previous: bool = True
    prompt: str = ""

    def __post_init__(self) -> None:
        refuse(self.beam < 1, f"beam must be at least 1, not {self.beam}")
        refuse(not self.temperatures, "temperatures needs at least one number: 0 is greedy")
        for one in self.temperatures:
            refuse(not 0 <= one < float("inf"), f"a temperature must be 0 or more, not {one}")
        refuse(self.most < 0, f"most must be 0 (as many as fit) or more, not {self.most}")
        refuse(self.prompt and not self.prompt.strip(), "the prompt is blank: leave it out, or write names in it")


@dataclass(frozen=True)
class SpeechTokens:
    """The ids of special tokens; None where a vocabulary has none. no_times: says that no timestamps follow;
    first_time: that of 0 seconds, all others behind it."""

    start: int
    end: int
    languages: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    no_times: int | None = None
    first_time: int | None = None
    previous: int | None = None
    no_speech: int | None = None

    @classmethod
    def of(cls, tokenizer: Any, symbols: Symbols, size: int) -> SpeechTokens:
        """Those of a tokenizer, by their names. `size`: entries that the model has."""
        ids = {name: i for name, i in tokenizer.inner.get_vocab(with_added_tokens=True).items() if name[:2] == "<|"}
        languages = {
            found[1]: i for name, i in ids.items() if (found := LANGUAGE.fullmatch(name)) and i > symbols.start
        }
        tasks = {name: ids[f"<|{name}|>"] for name in ("transcribe", "translate") if f"<|{name}|>" in ids}
        no_times = ids.get("<|notimestamps|>")
        first_time = None if no_times is None or no_times + 1 >= size else no_times + 1
        silent = ids.get("<|nospeech|>", ids.get("<|nocaptions|>"))
        others = no_times, first_time, ids.get("<|startofprev|>"), silent
        return cls(symbols.start, symbols.end, languages, tasks, *others)

    def opening(self, speaking: Speaking, language: str) -> list[int]:
        """What stands before the text of a window."""
        told = [self.start]
        if self.languages:
            if language not in self.languages:
                raise InputError(f"this model knows no language '{language}'{nearest(language, self.languages)}")
            told.append(self.languages[language])
        if self.tasks:
            told.append(self.tasks[speaking.task])
        if self.no_times is not None and not self.timed(speaking):
            told.append(self.no_times)
        return told

    def behind(self, before: Sequence[int], opening: list[int]) -> list[int]:
        """An opening with the text before its window."""
        return [self.previous, *before, *opening] if before and self.previous is not None else opening

    def timed(self, speaking: Speaking) -> bool:
        """Whether timestamps are written."""
        return speaking.timestamps and self.first_time is not None
