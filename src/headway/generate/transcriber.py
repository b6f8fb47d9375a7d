"""A transcriber on headway's own steps: recordings in; what was said, and when, out.

B windows, N samples, M mel bands, F frames, S places, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from headway.card import Loaded
from headway.data.augment import ImageInputs
from headway.device import sent
from headway.generate.hearing import TextTranscriber
from headway.generate.listening import Listening
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.generate.sounds import brightness
from headway.generate.speech import Speaking
from headway.generate.speech_rules import HeardRow, Ruled, Rules
from headway.generate.stepper import PlainStepper, stepper_for
from headway.generate.tracing import Answering, check_one, checked, nexts, token_track, trace_of
from headway.generate.word_times import beginnings, chosen_heads, grouped, pauses
from headway.models.protocols import Encoded
from headway.nn import tap
from headway.processors.sound import Spectrogram
from headway.traces import Trace, Track

DECODER = ("decoder.*", "embed_target.*", "logits")
AT_ONCE = {"cpu": 4, "cuda": 32}  # recordings that are heard side by side


@final
class Transcriber(TextTranscriber, Answering):
    """`headway.load(folder)` gives one: `transcriber.transcribe("talk.wav").text`, or a list of recordings. A recording
    is a file's path, an array of samples at the model's rate, a pair of an array and its own rate, or (in a list, and
    for `stream`) an iterator of arrays."""

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded.card, loaded.processors)
        self.limit, self.tokenizers = self.context, (self.tokenizer, self.tokenizer)
        self.device, self.dtype, self.at_once = device, dtype, AT_ONCE.get(device.type, AT_ONCE["cpu"])
        self.model: Any = loaded.model.to(device, dtype).eval()
        self._ruled: dict[Rules, tuple[Ruled, PlainStepper]] = {}  # kept: what a stepper captures serves later calls

    @torch.inference_mode()
    def encode(self, windows: Sequence[Spectrogram]) -> Tensor:
        """(B, S, D) of windows."""
        values_BCMF = sent(torch.from_numpy(np.stack(windows)), self.device).to(self.dtype)
        encoded: Encoded = self.model.encode(ImageInputs(values_BCMF))
        return encoded.x_BTD

    @torch.inference_mode()
    def first(self, heard: Tensor) -> tuple[list[float], list[dict[str, float]]]:
        """How probable silence is in each window, and each language: both by what follows the start."""
        tokens = self.tokens
        if not tokens.languages and tokens.no_speech is None:
            return [0.0] * len(heard), [{} for _ in heard]
        state = self.model.remember(Encoded(heard))
        starts_B1 = torch.full((len(heard), 1), tokens.start, device=self.device)
        logits_BV = self.model.logits(starts_B1, state)[0][:, 0].float()
        silences = [0.0] * len(heard)
        if tokens.no_speech is not None:
            silences = logits_BV.softmax(-1)[:, tokens.no_speech].tolist()
        shares_BL = logits_BV[:, list(tokens.languages.values())].softmax(-1).tolist()
        return silences, [dict(zip(tokens.languages, shares, strict=True)) for shares in shares_BL]

    def written(
        self, heard: Sequence[Tensor], openings: Sequence[list[int]], speaking: Speaking, temperature: float = 0.0
    ) -> list[tuple[list[int], float]]:
        """The tokens behind each opening, without the end, and their mean log-probability."""
        context, end = self.model.config.max_length, frozenset({self.tokens.end})
        rules = self._rules(speaking, len(openings[0]) - openings[0].index(self.tokens.start))
        searched = speaking.beam > 1 and temperature == 0
        choose: Any = Sampling(temperature=temperature)
        if searched:
            choose = Search(beam=speaking.beam, length_penalty=speaking.length_penalty)
        requests = []
        for x_SD, opening in zip(heard, openings, strict=True):
            most = min(speaking.most or context, context - len(opening))
            requests.append(
                Request(opening, choose, most, end, seed=speaking.seed, inputs=HeardRow(x_SD), cut=searched)
            )
        model, stepper = self._model(rules)
        found = generate_all(model, requests, context=context, device=self.device, stepper=stepper)
        if searched:
            best = [one.hypotheses[0] for one in found]
            return [(one.ids, sum(one.token_scores) / max(1, len(one.token_scores))) for one in best]
        return [(samples[0].ids, samples[0].mean) for samples in found]

    def _rules(self, speaking: Speaking, opening: int) -> Rules:
        tokens, timed = self.tokens, self.tokens.timed(speaking)
        never = speaking.suppress if tokens.no_times is None else (*speaking.suppress, tokens.no_times)
        first_time = tokens.first_time if timed else None
        how = (speaking.begin_suppress, first_time, speaking.latest_start)
        return Rules(tokens.start, tokens.end, opening, never if timed else speaking.suppress, *how)

    def _model(self, rules: Rules) -> tuple[Ruled, PlainStepper]:
        if rules not in self._ruled:
            model = Ruled(self.model, rules).eval()
            self._ruled[rules] = model, stepper_for(model, self.device)
        return self._ruled[rules]

    @torch.inference_mode()
    def align(
        self, x_SD: Tensor, opening: Sequence[int], ids: Sequence[int], frames: int, heads: Sequence[Sequence[int]] = ()
    ) -> Any:
        """The places at which each of these ids begins, and the one at which the last ends. What the decoder reads at a
        place is what it wrote before: the row of an id is that of the one before it."""
        given = [*opening, *ids, self.tokens.end][: self.model.config.max_length]
        pairs = chosen_heads(self.model.config.decoder_layers, self.model.config.heads, heads)
        choice = tap.chosen(layers={layer for layer, _ in pairs}, tensors="decoder.*.cross.weights")
        with tap.record(self.model, choice) as recorder:
            state = self.model.remember(Encoded(x_SD[None]))
            self.model.read(torch.tensor([given], device=self.device), state)
        found = recorder.tensors
        places = max(1, round(frames / self.frames * self.model.config.places))
        weights_HTS = torch.stack([found[f"decoder.{layer}.cross.weights"][0, head] for layer, head in pairs]).float()
        weights_HTS = weights_HTS[..., :places] / weights_HTS[..., :places].sum(-1, keepdim=True)
        starts = beginnings(weights_HTS, slice(len(opening) - 1, len(opening) + len(ids)))
        return np.pad(starts, (0, len(ids) + 1 - len(starts)), constant_values=places)  # where the end did not fit

    def places(self, text: str) -> int:
        return self.moments

    @torch.inference_mode()
    def trace(
        self, recording: Any, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5, **settings: Any,
    ) -> Trace:  # fmt: skip
        """What happens inside the decoder while the first window of a recording is transcribed: its cross-attention
        looks at the moments of the encoder, and `about["said"]` is when each word is said. `layers`, `heads`,
        `tensors`, `top`: as in `Translator.trace`; the encoder, whose attention has a number for each pair of moments,
        is traced where `tensors` name it."""
        check_one(recording)
        speaking = self.settings(settings)
        window_N = Listening(recording, self.rate).window(0, self.frames * self.hop)
        values = self.spectrogram(window_N)
        heard = self.encode([values])
        _, [shares] = self.first(heard)
        language = speaking.language or max(shares, key=shares.__getitem__, default="")
        opening = self.tokens.behind(self.prompt(speaking), self.tokens.opening(speaking, language))
        [(ids, _)] = self.written(list(heard), [opening], speaking)
        read = [*opening, *ids][: self.context]
        choice = checked(self.model, tap.chosen(layers, heads, DECODER if tensors is None else tensors))
        with tap.record(self.model, choice) as recorder:
            inputs = ImageInputs(sent(torch.from_numpy(values[None]), self.device).to(self.dtype))
            state = self.model.start(inputs, 1, self.device)
            logits_RTV, _ = self.model.logits(torch.tensor([read], device=self.device), state)
        places = max(1, round(len(window_N) / self.hop / self.frames * self.moments))
        moments = tuple(f"{at * self._place:.2f}" for at in range(places))
        told = (
            Path(recording).name if isinstance(recording, str | Path) else f"{len(window_N) / self.rate:.2f} s of sound"
        )
        special = [self.tokenizer.is_special(i) or at < len(opening) for at, i in enumerate(read)]
        source = Track("source", "moments", moments, text=told)
        tracks = [source, token_track("target", self.tokenizer, read, special)]
        about, more = nexts(logits_RTV[0], self.tokenizer, [*read[1:], self.tokens.end], top)
        about |= {"said": self._said(heard[0], read, len(opening), window_N, language, speaking)}
        trace = trace_of(self.model, recorder, tracks, name=self.name, about=about, more=more)
        shown_MFC = brightness(values[0][:, : -(-len(window_N) // self.hop)])
        return replace(
            trace, tensors=trace.tensors | {"pixels": shown_MFC},
            axes=trace.axes | {"pixels": ("height", "width", "channel")},
        )  # fmt: skip

    def _said(
        self, x_SD: Tensor, read: Sequence[int], first: int, window_N: Any, language: str, speaking: Speaking
    ) -> dict[str, Any]:
        """The seconds of a window, and of each word its text, when it begins and ends, and the places of its tokens in
        what the decoder read, whose text begins at `first`."""
        places = [at for at, i in enumerate(read) if at >= first and self.plain([i])]
        words = self.words([read[at] for at in places], language, speaking)
        quiet = pauses(window_N, self.rate, self.hop) if speaking.pauses else []
        frames = -(-len(window_N) // self.hop)
        spans = self.spans(words, x_SD, frames, quiet, language, speaking) if words else []
        own = grouped(places, [number for number, word in enumerate(words) for _ in word])
        texts = [self.text(word).strip() for word in words]
        told = [[text, *map(float, span), some] for text, span, some in zip(texts, spans, own, strict=True) if text]
        return {"seconds": len(window_N) / self.rate, "words": told}
