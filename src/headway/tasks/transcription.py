"""Transcription: what is said in recordings, learned from recordings with their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.batch import TokenBatch, sampled
from headway.card import Card, Loaded
from headway.data.augment import ImageInputs
from headway.data.images import Pictures, hold_out_pictures
from headway.data.sounds import QUIET, SoundAugment, SoundDraws, read_sounds
from headway.data.transcripts import TranscriptBatches
from headway.errors import refuse
from headway.evaluate.strings import StringErrors
from headway.generate.hearing import TextTranscriber
from headway.generate.segments import Segment, Transcript, clock, shown, srt, vtt
from headway.generate.speech import Speaking
from headway.generate.transcriber import Transcriber
from headway.hub.ctranslate2_speech import load_transcriber
from headway.plain import to_plain
from headway.processors.sound import SoundConfig
from headway.processors.text import TextConfig, TextProcessor
from headway.tasks.files import DividedFiles, divided, vocabularies
from headway.tasks.objective import CrossEntropy
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import Figure, Prediction, Report, Task, entropy, refuse_unknown, with_perplexity
from headway.text.tokenizer import TextOptions, Tokenizer

OPTIONS = {
    "beam_size": "beam", "language": "language", "seed": "seed", "max_new_tokens": "most", "prompt": "prompt",
}  # fmt: skip
FLAGS = ("words", "srt", "vtt", "live", "translate", "no_previous_text")
AT_ONCE = 16  # recordings that are in memory


@dataclass(frozen=True)
class TranscribedSounds(DividedFiles):
    """Recordings with their texts: tables with paths and texts, or .npz whose `labels` are the texts; each is one
    window, and its text is written without timestamps.

    Without `valid`, the share `hold_out` of the training recordings is. text: how a vocabulary is learned from the
    texts. language: of a model that knows several. The others as those of `LabelledSounds`; mixing two recordings has
    no meaning here. A batch of a run counts recordings.
    """

    name: ClassVar[str] = "transcribed-sounds"
    wanted: ClassVar[str] = "a table (.csv, .tsv, .jsonl) with paths of recordings and their texts"
    text: TextOptions = field(default_factory=lambda: TextOptions("bpe", 1000))
    language: str = ""
    rate: int = 16000
    window: int = 400
    hop: int = 160
    augment: SoundAugment = QUIET
    broken: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rate", "window", "hop"):
            refuse(getattr(self, name) < 1, f"data.{name} must be at least 1, not {getattr(self, name)}")
        refuse(self.augment.mixes, "data.augment.mixup must be 0: two recordings at once have two texts")


class Transcription(Task):
    """Judged by word error rate."""

    name = "transcription"
    data = TranscribedSounds
    objectives = (CrossEntropy,)
    roles = ("steps",)
    takes = ("sound", "text")
    headline = ("word error rate", False)
    verb = "predict"
    opens = Transcriber
    fast = staticmethod(load_transcriber)
    shown_losses = with_perplexity

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        reads = earlier.card.reads if earlier else self._sound()
        with context.ranks.in_turn():
            read = partial(read_sounds, read=reads.open(context.out).read, broken=run.data.broken, say=self.log.say)
            self.parts: dict[str, Pictures] = divided(run.data, context, read, hold_out_pictures, folders=True)
            tokenizer = earlier.target_tokenizer if earlier else self._tokenizer()
        for part, recordings in self.parts.items():
            self.log.say(f"{part}: {len(recordings):,} recordings")
            self.log.event("data", part=part, recordings=len(recordings))
        self.data_names = {part: recordings.fingerprint for part, recordings in self.parts.items()}
        sizes = earlier.card.sizes if earlier else (1, len(tokenizer))
        self.model = first_model(run, context, sizes, (tokenizer,), None, earlier)
        writes = earlier.card.writes if earlier else TextConfig(len(tokenizer), run.data.text)
        search = (earlier.card.search if earlier else to_plain(Speaking())) | {
            "timestamps": False, "language": run.data.language,
        }  # fmt: skip
        self.card = Card(
            run.model.name, run.model, self.name, {"sound": reads, "text": writes}, search=search, run=to_plain(run)
        )
        self.processors = {"sound": reads.open(context.out), "text": TextProcessor(writes, tokenizer)}
        loaded = Loaded(self.model, self.card, self.processors)
        self.transcriber = Transcriber(loaded, context.device, context.dtype)
        self.speaking = self.transcriber.settings({"timestamps": False, "language": run.data.language})
        self.opening = self.transcriber.tokens.opening(self.speaking, run.data.language)
        self.texts = {part: self._ids(part) for part in self.parts}
        full = context.device.type == "cuda"
        self.batches = self._batches("train", run.engine.seed, full=full, draws=self._draws())
        self.valid = self._batches("valid", 0, shuffle=False)

    def _sound(self) -> SoundConfig:
        data, (bands, frames) = self.run.data, self.run.model.size
        return SoundConfig(1, data.rate, bands, frames, data.window, data.hop)

    def _tokenizer(self) -> Tokenizer:
        texts = self.parts["train"].labels
        (found,) = vocabularies(self.context, lambda: [Tokenizer.train(list(texts), self.run.data.text)])
        return found

    def _ids(self, part: str) -> list[list[int]]:
        """The tokens of each text, with its end."""
        tokenizer, recordings = self.processors["text"].tokenizer, self.parts[part]
        most = self.run.max_length - len(self.opening)
        found = [[*ids, self.card.symbols.end] for ids in tokenizer.encode_batch(list(recordings.labels))]
        for ids, name in zip(found, recordings.names, strict=True):
            refuse(len(ids) > most, f"{name}: its text has {len(ids) - 1} tokens, this model writes at most {most - 1}")
        return found

    def _draws(self) -> SoundDraws | None:
        augment = self.run.data.augment
        return None if augment == QUIET else SoundDraws(augment, *self.run.model.size)

    def _batches(self, part: str, seed: int, **how: Any) -> TranscriptBatches:
        scale, rows = self.processors["sound"].scale, self.run.engine.batch
        return TranscriptBatches(self.parts[part].pixels_NCHW, self.texts[part], self.opening, scale, rows, seed, **how)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "word error rate", Figure(self._errors("valid").token_error, False, 2)

    def final_figures(self) -> dict[str, Any]:
        if "test" not in self.parts:
            return {}
        errors = self._errors("test")
        return {
            "test word error rate": round(errors.token_error, 2), "test texts with errors": round(errors.word_error, 2),
        }  # fmt: skip

    def _errors(self, part: str) -> StringErrors:
        recordings = self.parts[part]
        count = (self.run.validation.sentences or len(recordings)) if part == "valid" else len(recordings)
        some = list(sampled(range(min(count, len(recordings))), self.share))
        written: list[str] = []
        with self.log.bar("transcribing", len(some), " recordings") as show:
            for start in range(0, len(some), AT_ONCE):
                written += self._written(part, some[start : start + AT_ONCE])
                show(len(written))
        return StringErrors.of(written, [recordings.labels[i] for i in some])

    def _written(self, part: str, numbers: Sequence[int]) -> list[str]:
        mean, std = self.processors["sound"].scale
        windows = [(self.parts[part].pixels_NCHW[i] - mean) / std for i in numbers]
        return self.transcriber.say(windows, self.opening, self.speaking)

    def example(self) -> str:
        return f"{self.parts['valid'].labels[0]} → {self._written('valid', [0])[0]}"

    def shown(self, example: int) -> str:
        return str(self.parts["train"].names[example])

    def guess(self) -> float:
        counts = Counter(i for ids in self.texts["train"] for i in ids)
        return entropy(np.array(list(counts.values())))

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return 1, run.data.text.size

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        how = ("rate", "window", "hop", "text", "language")
        return data if like is None else replace(data, **{name: getattr(like, name) for name in how})

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TokenBatch:
        rows, length = run.engine.batch, min(16, run.max_length)
        ids_BT = torch.randint(4, run.data.text.size, (rows, length), device=device)
        return TokenBatch(ids_BT, ids_BT, inputs=ImageInputs(torch.randn(rows, 1, *run.model.size, device=device)))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts or not inputs, "this model reads recordings: headway predict MODEL RECORDING … (or --live)")
        return inputs

    @classmethod
    def answer(cls, model: TextTranscriber, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """Of each recording its text; with `srt` or `vtt` its subtitles, with `words` a line for each word; with
        `live` a line for each segment as it comes."""
        refuse_unknown(options, (*OPTIONS, *FLAGS), "a model that transcribes")
        told = [name for name in ("words", "srt", "vtt", "live") if name in options]
        refuse(len(told) > 1, f"choose one of {' and '.join(f'--{name}' for name in told)}")
        refuse("prompt" in options and not options["prompt"].strip(), "--prompt is empty: leave it out")
        settings = {name: options[option] for option, name in OPTIONS.items() if option in options}
        settings |= {"task": "translate"} if "translate" in options else {}
        settings |= {"previous": False} if "no_previous_text" in options else {}
        if "live" in options:
            for segment in model.stream(values[0], every=LIVE, **settings):
                yield Prediction(_line(segment), _segment(segment))
            return
        for start in range(0, len(values), AT_ONCE):
            some = values[start : start + AT_ONCE]
            found = model.transcribe(list(some), words="words" in options, **settings)
            for value, transcript in zip(some, found, strict=True):
                yield Prediction(_told(transcript, told), _values(value, transcript))

    @classmethod
    def evaluate(cls, model: Transcriber, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Word error rate of the transcripts of these recordings."""
        refuse_unknown(options, ("beam_size",), "a model that transcribes")
        found = read_sounds(files, lambda value: value, stacked=False)
        settings = {"beam": options["beam_size"]} if "beam_size" in options else {}
        texts = [one.text for one in model.transcribe(list(found.pixels_NCHW), **settings)]
        errors = StringErrors.of(texts, list(found.labels))
        values = {
            "word_error_rate": errors.token_error, "texts_with_errors": errors.word_error, "recordings": len(texts),
        }  # fmt: skip
        lines = [f"word error rate   {errors.token_error:.2f} %, {len(texts):,} recordings",
                 f"texts with errors {errors.word_error:.2f} %"]  # fmt: skip
        return Report(values, lines)


LIVE = 5.0  # seconds between two looks at what was said


def _line(segment: Segment) -> str:
    return f"[{clock(segment.start, '.')} → {clock(segment.end, '.')}] {shown(segment.text)}"


def _told(transcript: Transcript, how: Sequence[str]) -> str:
    if not how:
        return shown(transcript.text)
    if list(how) == ["words"]:
        words = [word for segment in transcript.segments for word in segment.words]
        return "\n".join(f"{word.start:.2f}\t{word.end:.2f}\t{word.text}" for word in words)
    return {"srt": srt, "vtt": vtt}[how[0]](transcript.segments).rstrip("\n")


def _segment(segment: Segment) -> dict[str, Any]:
    found = {"start": segment.start, "end": segment.end, "text": segment.text.strip(),
             "logprob": round(segment.logprob, 4), "silence": round(segment.silence, 4),
             "temperature": segment.temperature}  # fmt: skip
    words = [{"word": word.text, "start": word.start, "end": word.end} for word in segment.words]
    return found | ({"words": words} if words else {})


def _values(value: Any, transcript: Transcript) -> dict[str, Any]:
    segments = [_segment(segment) for segment in transcript.segments]
    found = {"recording": str(value), "text": transcript.text, "segments": segments}
    return found | ({"language": transcript.language} if transcript.language else {})
