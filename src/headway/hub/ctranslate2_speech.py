"""Transcribing with CTranslate2 instead of headway's own steps.

B windows, M mel bands, F frames, S places, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from headway.errors import refuse
from headway.extras import wanted
from headway.generate.hearing import TextTranscriber
from headway.generate.speech import Speaking
from headway.generate.word_times import SMOOTH
from headway.hub.ctranslate2_engine import ENGINE, opened_engine
from headway.processors.sound import Spectrogram

ANY_START = 1 << 20  # steps of 0.02 s


@final
class FastTranscriber(TextTranscriber):
    """A `Transcriber` on CTranslate2."""

    def __init__(self, engine: Any, card: Any, processors: dict[str, Any]) -> None:
        super().__init__(card, processors)
        self.engine, self.library = engine, wanted("ctranslate2", "ctranslate2")

    def _view(self, array: NDArray[np.float32]) -> Any:
        return self.library.StorageView.from_array(np.ascontiguousarray(array, np.float32))

    def encode(self, windows: Sequence[Spectrogram]) -> NDArray[np.float32]:
        """(B, S, D) of windows."""
        return np.array(self.engine.encode(self._view(np.stack([window[0] for window in windows])), to_cpu=True))

    def first(self, heard: NDArray[np.float32]) -> tuple[list[float], list[dict[str, float]]]:
        tokens = self.tokens
        languages: list[dict[str, float]] = [{} for _ in heard]
        if tokens.languages and self.engine.is_multilingual:  # which it tells by the size of the vocabulary
            languages = [
                {name[2:-2]: float(share) for name, share in shares}
                for shares in self.engine.detect_language(self._view(heard))
            ]
        asked = self.engine.generate(
            self._view(heard), [[tokens.start]] * len(heard), max_length=2, return_no_speech_prob=True, beam_size=1
        )
        return [float(one.no_speech_prob) for one in asked], languages

    def written(
        self, heard: Sequence[Any], openings: Sequence[list[int]], speaking: Speaking, temperature: float = 0.0
    ) -> list[tuple[list[int], float]]:
        refuse(temperature > 0 and speaking.seed, f"{ENGINE} draws from a seed of its own: leave --seed out")
        found: dict[int, tuple[list[int], float]] = {}
        for length in {len(opening) for opening in openings}:  # the start must be at the same place in all of them
            rows = [row for row, opening in enumerate(openings) if len(opening) == length]
            given = [heard[row] for row in rows], [openings[row] for row in rows]
            found |= zip(rows, self._searched(*given, speaking, temperature), strict=True)
        return [found[row] for row in range(len(openings))]

    def _searched(
        self, heard: Sequence[Any], openings: Sequence[list[int]], speaking: Speaking, temperature: float
    ) -> list[tuple[list[int], float]]:
        """Of openings of one length."""
        sampled, most = temperature > 0, min(speaking.most or self.context, self.context - len(openings[0]))
        # It writes at most half of its `max_length`, and of an opening counts all but the last token.
        found = self.engine.generate(
            self._view(np.stack(list(heard))), [list(opening) for opening in openings],
            beam_size=1 if sampled else speaking.beam, length_penalty=speaking.length_penalty, return_scores=True,
            max_length=max(len(openings[0]) - 1 + most, 2 * most), suppress_blank=bool(speaking.begin_suppress),
            suppress_tokens=list(speaking.suppress), sampling_topk=0 if sampled else 1,
            sampling_temperature=temperature if sampled else 1.0,
            max_initial_timestamp_index=ANY_START if speaking.latest_start is None else speaking.latest_start,
        )  # fmt: skip
        return [self._told(one, speaking) for one in found]

    def _told(self, result: Any, speaking: Speaking) -> tuple[list[int], float]:
        """Its score is the sum over lengthᵅ, the end not counted."""
        ids = list(result.sequences_ids[0])
        total = result.scores[0] * max(1, len(ids)) ** speaking.length_penalty
        return ids, float(total) / (len(ids) + 1)

    def align(
        self, heard: Any, opening: Sequence[int], ids: Sequence[int], frames: int, heads: Sequence[Sequence[int]] = ()
    ) -> Any:
        """By the heads that the folder was written with."""
        start = [i for i in opening if i != self.tokens.no_times]
        (found,) = self.engine.align(self._view(heard[None]), start, [list(ids)], frames, median_filter_width=SMOOTH)
        rows, columns = np.array(found.alignments).T
        starts = columns[np.diff(rows, prepend=-1) > 0]
        return np.pad(starts, (0, len(ids) + 1 - len(starts)), constant_values=max(1, frames // 2))


def load_transcriber(folder: str | Path, device: str = "auto", precision: str = "auto") -> FastTranscriber:
    return FastTranscriber(*opened_engine("models.Whisper", folder, device, precision))
