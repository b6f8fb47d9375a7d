"""Real speech: how well a model of speech hears sequences of spoken digits, and when it finds each word.

    python benchmarks/sound_sets.py --data data --out data
    PYTHONPATH=src python benchmarks/speech.py MODEL data/fsdd/sequences-test.npz --name whisper-tiny

The words of a transcript are compared with those that were said, digits spelled out (word error rate). Of sequences
without a fault, the time at which each word begins and ends is compared with the truth: the clips were joined, so it is
known. `log-mel`: the largest difference of a spectrogram from that of transformers' feature extractor (float32), and
from the same formula in float64, over all recordings.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import re
from typing import Any

import numpy as np

import headway
from headway.data.sound_files import resampled
from headway.evaluate.strings import StringErrors
from headway.processors.mel import mel_bands

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WITHIN = 0.05


def recordings(path: str) -> list[tuple[Any, str, list[tuple[float, float]]]]:
    """Samples at 8 kHz, text, and the times of its words."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    ends, words = np.cumsum(arrays["lengths"]), np.cumsum(arrays["counts"])
    found = []
    for at, text in enumerate(arrays["labels"].tolist()):
        span = slice(words[at] - arrays["counts"][at], words[at])
        times = list(zip(arrays["starts"][span].tolist(), arrays["ends"][span].tolist(), strict=True))
        samples = arrays["sounds"][ends[at] - arrays["lengths"][at] : ends[at]]
        found.append(((samples / 32768).astype(np.float32), text, times))
    return found


def spelled(text: str) -> list[str]:
    """Words in small letters, digits by their names: "3-5" and "Three, five." are the same."""
    text = re.sub(r"\d", lambda digit: f" {NAMES[int(digit[0])]} ", text.lower())
    return re.sub(r"[^a-z ]", " ", text).split()


def heard(model: Any, known: list[Any], rate: int) -> list[Any]:
    samples = [resampled(one, 8000, rate) for one, _, _ in known]
    how: dict[str, Any] = {"language": "en"} if model.tokens.languages else {}
    found = []
    for start in range(0, len(samples), 4):
        found += model.transcribe(samples[start : start + 4], words=True, **how)
    return found


def times(known: list[Any], found: list[Any]) -> dict[str, Any]:
    """Of words that were heard right, how many begin and end within 50 ms of the truth."""
    apart = []
    for (_, text, truth), transcript in zip(known, found, strict=True):
        words = [word for segment in transcript.segments for word in segment.words]
        if [name for word in words for name in spelled(word.text)] != text.split() or len(words) != len(truth):
            continue
        apart += [(word.start - start, word.end - end) for word, (start, end) in zip(words, truth, strict=True)]
    apart_N2 = np.array(apart).reshape(-1, 2)
    if not len(apart_N2):
        return {"words_timed": 0}
    near_N2 = np.abs(apart_N2) <= WITHIN
    return {
        "words_timed": len(apart_N2),
        "starts_within_50_ms": round(float(near_N2[:, 0].mean()), 3),
        "ends_within_50_ms": round(float(near_N2[:, 1].mean()), 3),
        "start_median_ms": round(float(np.median(apart_N2[:, 0])) * 1000),
        "end_median_ms": round(float(np.median(apart_N2[:, 1])) * 1000),
    }


def exact_log_mel(samples: Any, config: Any) -> Any:
    """The formula in float64 with a Fourier transform written out as a product."""
    half = config.window // 2
    padded = np.pad(np.pad(samples.astype(np.float64), (0, config.frames * config.hop - len(samples))), half, "reflect")
    n = np.arange(config.window)
    frames = np.stack([padded[t * config.hop : t * config.hop + config.window] for t in range(config.frames)])
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / config.window)
    turns = np.exp(-2j * np.pi * np.outer(n, np.arange(half + 1)) / config.window)
    power = np.abs((frames * hann) @ turns) ** 2
    found = np.log10(np.maximum(mel_bands(config.rate, config.window, config.bands) @ power.T, 1e-10))
    return (np.maximum(found, found.max() - 8.0) + 4.0) / 4.0


def log_mel(model: Any, known: list[Any]) -> dict[str, Any]:
    import transformers

    config = model.processor.config
    extractor = transformers.WhisperFeatureExtractor(
        feature_size=config.bands, sampling_rate=config.rate, hop_length=config.hop, n_fft=config.window,
        chunk_length=-(-config.frames * config.hop // config.rate),
    )  # fmt: skip
    theirs, exact = 0.0, 0.0
    for samples, _, _ in known:
        samples = resampled(samples, 8000, config.rate)
        mine = model.spectrogram(samples)[0]
        other = extractor(samples, sampling_rate=config.rate, return_tensors="np")["input_features"][0]
        theirs = max(theirs, float(np.abs(mine - other).max()))
        exact = max(exact, float(np.abs(mine - exact_log_mel(samples, config)).max()))
    return {"log_mel_from_transformers": theirs, "log_mel_from_float64": exact}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--name", required=True, help="of the model, in the result")
    parser.add_argument("--count", type=int, default=300, help="sequences")
    options = parser.parse_args()
    known = recordings(options.data)[: options.count]
    model = headway.load(options.model, options.device)
    found = heard(model, known, model.rate)
    written = [" ".join(spelled(one.text)) for one in found]
    errors = StringErrors.of(written, [text for _, text, _ in known])
    row = {
        "model": options.name, "sequences": len(known), "word_error_rate": round(errors.token_error, 2),
        "texts_with_errors": round(errors.word_error, 2), **times(known, found),
        **(log_mel(model, known[:40]) if options.device == "cpu" else {}),
    }  # fmt: skip
    write(f"speech-{options.name}", options.device, [row], options.out)


if __name__ == "__main__":
    main()
