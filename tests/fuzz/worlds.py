"""A small run of every task: its data, the command that trains it, and commands that use the model.

A new task, family or data kind joins the harness by one entry here.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from graph_files import graphs
from json_files import conversations, conversations_and_model, questions, summaries
from seen_files import filmed, mixed, nothing, scenes, trajectories

from headway.recipes.grammar import sample
from milk import write_stories
from small_world import write_pairs

TIMES = ("seconds", "tokens_per_second", "training seconds", "counting seconds", "fitting seconds", "of_peak", "memory")
ENGINE = (
    "engine.device=cpu", "engine.steps=8", "engine.batch=128", "engine.snapshot=3", "engine.log=4", "engine.average=2",
    "engine.checkpoint=3", "engine.keep=2", "validation.every=4", "validation.score_every=4", "engine.workers=1",
)  # fmt: skip
SEEN = (
    "engine.batch=8", "model.image=16", "model.stem=patches", "model.patch=4", "model.width=16", "model.heads=2",
    "model.inner=32",
)  # fmt: skip
SMALL = ("model.width=16", "model.heads=2", "model.inner=32", "model.max_length=64")


@dataclass(frozen=True)
class World:
    """words: of `headway train`, without --out. uses: commands that take a model, MODEL standing for its folder.
    stores: whether its data are encoded once and kept in the cache."""

    make: Callable[[Path], None]
    words: tuple[str, ...]
    settings: tuple[str, ...] = ()
    uses: tuple[tuple[str, ...], ...] = ()
    stores: bool = True

    def train(self, out: str, *more: str) -> list[str]:
        return ["train", *self.words, "--out", out, "--threads", "1", *more, "--set", *self.settings]


def pairs(folder: Path) -> None:
    write_pairs(folder, 40, 4, 4)


def strings(folder: Path) -> None:
    words = sorted({word for sentence in sample(80, seed=3) for word in sentence.source.split()})
    for part, chosen in (("train", words), ("valid", words[::5]), ("test", words[::7])):
        rows = [f"{word}\t{' '.join(word.upper())}" for word in chosen]
        (folder / f"{part}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def text(folder: Path) -> None:
    lines = [sentence.source for sentence in sample(120, seed=3)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def labelled(folder: Path) -> None:
    rows = [f"{i % 2}\t{('bad', 'good')[i % 2]} {sentence.source}" for i, sentence in enumerate(sample(60, seed=3))]
    for part, chosen in (("train", rows[:48]), ("valid", rows[48:])):
        (folder / f"{part}.tsv").write_text("\n".join(chosen) + "\n", encoding="utf-8")


def several(folder: Path) -> None:
    words = [f"{('bad', 'good')[i % 2]} {sentence.source}" for i, sentence in enumerate(sample(60, seed=3))]
    rows = [json.dumps({"text": text, "labels": ["a", "b", "c"][: i % 4]}) for i, text in enumerate(words)]
    for part, chosen in (("train", rows[:48]), ("valid", rows[48:])):
        (folder / f"{part}.jsonl").write_text("\n".join(chosen) + "\n", encoding="utf-8")


def tagged(folder: Path) -> None:
    for part, count in (("train", 40), ("valid", 10)):
        texts = [f"the O\ncat{n % 7} B-X\nsat I-X\n" if n % 2 else f"dogs{n % 5} B-Y\nrun O\n" for n in range(count)]
        (folder / f"{part}.conll").write_text("\n".join(texts), encoding="utf-8")


def pictures(folder: Path) -> None:
    from PIL import Image

    random = np.random.default_rng(0)
    for label in ("dark", "light"):
        place = folder / "pictures" / label
        place.mkdir(parents=True)
        for number in range(12):
            array = random.integers(0, 120, (8, 8), dtype=np.uint8) + (130 if label == "light" else 0)
            Image.fromarray(array.astype(np.uint8)).save(place / f"{number}.png")


def speech(folder: Path) -> None:
    """Recordings of a tone, each with the word for it."""
    random, rate = np.random.default_rng(0), 8000
    (folder / "speech").mkdir()
    lines = ["path,text"]
    for number in range(24):
        word, pitch = (("low", 200), ("high", 2000))[number % 2]
        tone = 0.3 * np.sin(2 * np.pi * pitch * np.arange(1200) / rate) + 0.01 * random.standard_normal(1200)
        with wave.open(str(folder / f"speech/{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((tone * 32767).astype("<i2").tobytes())
        lines.append(f"{number}.wav,{word}")
    (folder / "speech/all.csv").write_text("\n".join(lines) + "\n")


def sounds(folder: Path) -> None:
    random, rate = np.random.default_rng(0), 8000
    for label, pitch in (("low", 200), ("high", 2000)):
        place = folder / "sounds" / label
        place.mkdir(parents=True)
        for number in range(12):
            tone = 0.3 * np.sin(2 * np.pi * pitch * np.arange(1200) / rate) + 0.01 * random.standard_normal(1200)
            with wave.open(str(place / f"{number}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes((tone * 32000).astype("<i2").tobytes())


def stories(folder: Path) -> None:
    write_stories(folder / "milk_train.txt", 30)
    write_stories(folder / "milk_test.txt", 6, seed=2)


PAIRS = (
    "--data", "train.en", "train.fr", "--valid", "valid.en", "valid.fr", "--test", "test.en", "test.fr",
    "--source", "en", "--target", "fr",
)  # fmt: skip
PAIR_SETTINGS = (*ENGINE, "data.text.size=300", "data.text.min_count=1", "search.beam=1", "validation.sentences=2")
LABELS = (*ENGINE, "data.text.size=300", "model.layers=1", *SMALL)
TRANSLATES = (("translate", "MODEL", "test.en", "--device", "cpu"),)
GENERATES = (
    ("generate", "MODEL", "--prompt", "the", "--max-new-tokens", "4", "--seed", "1", "--device", "cpu"),
    ("evaluate", "MODEL", "text.txt", "--device", "cpu", "--json"),
)

WORLDS: dict[str, World] = {
    "translate": World(
        pairs, ("translate", *PAIRS),
        (*PAIR_SETTINGS, *SMALL, "model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.1"), TRANSLATES,
    ),
    "recurrent": World(pairs, ("translate-rnn", *PAIRS), (*PAIR_SETTINGS, "model.width=16"), TRANSLATES),
    "convolutional": World(
        pairs, ("translate-conv", *PAIRS),
        (*PAIR_SETTINGS, "model.width=16", "model.inner=16", "model.encoder_layers=1", "model.decoder_layers=2"),
        TRANSLATES,
    ),
    "plain-recurrent": World(
        pairs, ("translate-rnn", *PAIRS),
        (*PAIR_SETTINGS, "model.width=16", "model.cell=lstm", "model.attention=none", "model.start=copied",
         "model.direction=backwards"),
        TRANSLATES,
    ),
    "strings": World(
        strings, ("g2p", "--data", "train.tsv", "--valid", "valid.tsv", "--test", "test.tsv"),
        (*ENGINE, "model.width=16", "model.form=feeding", "search.beam=1"),
        (("predict", "MODEL", "--text", "cat", "--device", "cpu"), ("evaluate", "MODEL", "test.tsv", "--json"),),
    ),
    "gpt": World(
        text, ("gpt", "--data", "text.txt"),
        (*ENGINE, *SMALL, "model.layers=1", "data.text.size=300"), GENERATES,
    ),
    "endless": World(
        text, ("endless", "--data", "text.txt"),
        (*ENGINE, *SMALL, "model.layers=1", "data.text.size=300", "model.pattern.window=8", "model.pattern.sinks=2"),
        GENERATES,
    ),
    "lstm": World(
        text, ("lstm", "--data", "text.txt"),
        (*ENGINE, "model.layers=1", "model.width=16", "data.text.size=300"), GENERATES,
    ),
    "markov": World(text, ("markov", "--data", "text.txt"), ("model.order=3",), GENERATES),
    "skip-gram": World(
        text, ("skip-gram", "--data", "text.txt"), (*ENGINE, "model.width=16", "data.text.min_count=1"),
        (("vectors", "MODEL", "--out", "words.txt"),),
    ),
    "masked": World(
        text, ("bert", "--data", "text.txt"),
        (*ENGINE, *SMALL, "model.layers=1", "data.text.size=300", "data.length=24"),
        (
            ("predict", "MODEL", "--text", "the [MASK] sat", "--device", "cpu"),
            ("evaluate", "MODEL", "text.txt", "--device", "cpu", "--json"),
        ),
    ),
    "classify": World(
        labelled, ("classify", "--data", "train.tsv", "--valid", "valid.tsv"), LABELS,
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "text-cnn": World(
        labelled, ("classify-cnn", "--data", "train.tsv", "--valid", "valid.tsv"),
        (*ENGINE, "model.width=16", "model.composition.maps=4", "data.order=mixed", "data.hidden=0.2",
         "objective=labels-r-drop"),
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "text-rnn": World(
        labelled, ("classify-lstm", "--data", "train.tsv", "--valid", "valid.tsv"), (*ENGINE, "model.width=16"),
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "text-bag": World(
        labelled, ("classify-bigrams", "--data", "train.tsv", "--valid", "valid.tsv"),
        (*ENGINE, "model.width=16", "model.grams.buckets=50", "data.class_weights=balanced"),
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "tfidf": World(
        labelled, ("classify-tfidf", "--data", "train.tsv", "--valid", "valid.tsv"), ("engine.device=cpu",),
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "several labels": World(
        several, ("classify-several", "--data", "train.jsonl", "--valid", "valid.jsonl"),
        (*LABELS, "data.class_weights=balanced"),
        (("predict", "MODEL", "--text", "good cat", "--device", "cpu"),), stores=False,
    ),
    "tag": World(
        tagged, ("tag", "--data", "train.conll", "--valid", "valid.conll"), LABELS,
        (("predict", "MODEL", "--text", "the cat1 sat", "--device", "cpu"),), stores=False,
    ),
    "tag-bilstm": World(
        tagged, ("tag-bilstm", "--data", "train.conll", "--valid", "valid.conll"),
        (*ENGINE, "model.width=16", "model.words=8", "model.letters.narrow=4", "model.letters.width=4"),
        (("predict", "MODEL", "valid.conll", "--conll", "--device", "cpu"),), stores=False,
    ),
    "answer": World(
        questions, ("answer", "--data", "train.json", "--valid", "valid.jsonl"), (*LABELS, "data.stride=4"),
        (
            ("predict", "MODEL", "valid.jsonl", "--device", "cpu"),
            ("evaluate", "MODEL", "valid.jsonl", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
    "pictures": World(
        pictures, ("classify-pictures", "--data", "pictures"),
        (*ENGINE, "engine.batch=8", "model.image=8", "model.patch=4", "model.layers=1", "model.width=16",
         "model.heads=2", "model.inner=32", "model.drop_path=0.2", "data.augment.operations=2",
         "data.augment.mixup=0.8", "data.augment.cutmix=1.0", "data.augment.erase=0.3"),
        (("predict", "MODEL", "pictures/dark/0.png", "--device", "cpu"),), stores=False,
    ),
    "masks": World(
        scenes, ("scenes-masks", "--data", "train.npz"), (*ENGINE, *SEEN, "model.layers=1", "data.flip=true"),
        (("predict", "MODEL", "0.png", "--device", "cpu", "--json"),
         ("evaluate", "MODEL", "train.npz", "--device", "cpu", "--json")), stores=False,
    ),
    "boxes": World(
        scenes, ("scenes-boxes",),
        (*ENGINE, *SEEN, "model.layers=1", "head.layers=1", "head.queries=3", "data.scenes.held=6",
         "model.dropout=0.1"),
        (("predict", "MODEL", "0.png", "--device", "cpu", "--json"),
         ("evaluate", "MODEL", "train.npz", "--device", "cpu", "--json")), stores=False,
    ),
    "objects": World(
        scenes, ("scenes-objects", "--data", "train.npz"),
        (*ENGINE, *SEEN, "model.layers=1", "head.layers=1", "head.queries=3", "data.flip=true", "model.dropout=0.1"),
        (("predict", "MODEL", "0.png", "--device", "cpu", "--json"),
         ("evaluate", "MODEL", "train.npz", "--device", "cpu", "--json")), stores=False,
    ),
    "captions": World(
        scenes, ("scenes-captions", "--data", "train.npz"),
        (*ENGINE, *SEEN, "model.encoder_layers=1", "model.decoder_layers=1", "model.max_length=32",
         "model.dropout=0.1"),
        (("predict", "MODEL", "0.png", "--device", "cpu"),), stores=False,
    ),
    "sounds": World(
        sounds, ("classify-sounds", "--data", "sounds"),
        (*ENGINE, "engine.batch=8", "data.rate=8000", "data.window=128", "data.hop=100", "model.image=8",
         "model.across=12", "model.layers=1", "model.width=16", "model.heads=2", "model.inner=32",
         "data.augment.mixup=0.5"),
        (("predict", "MODEL", "sounds/low/0.wav", "--device", "cpu"),), stores=False,
    ),
    "policies": World(
        trajectories, ("decision-transformer", "--data", "train.npz"),
        (*ENGINE, "engine.batch=32", "model.width=16", "model.layers=1", "model.max_length=4", "model.longest=16",
         "data.episodes=1"),
        (
            ("play", "MODEL", "--device", "cpu", "--episodes", "2", "--steps", "5"),
            ("evaluate", "MODEL", "train.npz", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
    "robots": World(
        filmed, ("robot-pictures", "--data", "train.npz"),
        (*ENGINE, "engine.batch=16", "model.width=16", "model.heads=2", "model.layers=1", "model.looks=1",
         "model.max_length=2", "model.image=8", "model.stem.layers=1", "head.chunk=2", "data.reads=2", "data.shift=1",
         "data.episodes=1"),
        (
            ("play", "MODEL", "--device", "cpu", "--episodes", "2", "--steps", "5"),
            ("evaluate", "MODEL", "train.npz", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
    "mixtures": World(
        mixed, ("mixture", "--data", "captions.npz", "questions.jsonl", "steps.npz"),
        (*ENGINE, "engine.batch=9", "model.image=8", "model.stem=patches", "model.patch=4", "model.width=16",
         "model.heads=2", "model.layers=1", "model.bins=8", "model.max_length=32", "data.reads=2", "data.shift=1",
         "data.flip=true", "search.beam=2"),
        (
            ("predict", "MODEL", "0.png", "--question", "how many shapes are there?", "--device", "cpu"),
            ("evaluate", "MODEL", "captions.npz", "questions.jsonl", "steps.npz", "--device", "cpu", "--json"),
            ("play", "MODEL", "--device", "cpu", "--episodes", "2", "--steps", "5"),
        ),
        stores=False,
    ),
    "practice": World(
        nothing, ("ppo-rnn",),
        (*ENGINE, "data.world=lane-keeping", "data.rows=2", "data.rollout=12", "data.judged=1", "data.episodes=1",
         "objective.epochs=2", "objective.parts=2", "model.width=16", "model.max_length=5"),
        (("play", "MODEL", "--device", "cpu", "--episodes", "2", "--steps", "5"),), stores=False,
    ),
    "speech": World(
        speech, ("transcribe", "--data", "speech/all.csv"),
        (*ENGINE, "engine.batch=8", "data.rate=8000", "data.window=128", "data.hop=100", "data.text.kind=word",
         "data.text.size=8", "data.text.min_count=1", "model.bands=8", "model.places=8", "model.encoder_layers=1",
         "model.decoder_layers=1", "model.width=16", "model.heads=2", "model.inner=32", "model.max_length=8",
         "model.dropout=0.1"),
        (
            ("predict", "MODEL", "speech/0.wav", "--device", "cpu"),
            ("evaluate", "MODEL", "speech/all.csv", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
    "summarise": World(
        summaries, ("summarise", "--data", "mail.jsonl"),
        (*ENGINE, *SMALL, "model.encoder_layers=1", "model.decoder_layers=1", "data.text.size=300",
         "data.text.min_count=1", "search.beam=1"),
        (
            ("predict", "MODEL", "--text", "the cat 7 sat on mat 3", "--device", "cpu"),
            ("evaluate", "MODEL", "mail.jsonl", "--device", "cpu", "--json"),
        ),
    ),
    "tune": World(
        conversations, ("tune", "--data", "talk.jsonl"),
        (*ENGINE, "model.layers=1", "model.width=16", "model.heads=2", "model.max_length=64", "data.text.size=300"),
        (("generate", "MODEL", "--chat", "--prompt", "what is 1 and 2", "--max-new-tokens", "3", "--device", "cpu"),),
        stores=False,
    ),
    "prefer": World(
        conversations_and_model, ("prefer", "--data", "pairs.jsonl", "--init", "base"), ENGINE,
        (("generate", "MODEL", "--chat", "--prompt", "what is 1", "--max-new-tokens", "3", "--device", "cpu"),),
        stores=False,
    ),
    "reward": World(
        conversations, ("reward", "--data", "pairs.jsonl"), LABELS,
        (("predict", "MODEL", "--text", "what is 1 and 2\tit is 3\tno idea", "--device", "cpu"),), stores=False,
    ),
    "graphs": World(
        graphs, ("graph", "--data", "train.jsonl"),
        (*ENGINE, "engine.batch=8", "model.width=16", "model.layers=1", "model.heads=2", "model.walk=3",
         "model.laplacian=2", "model.path=2", "model.dropout=0.1"),
        (
            ("predict", "MODEL", '{"nodes": [[1, "x"], [2, "x"]], "edges": [[0, 1, "a"]]}', "--device", "cpu"),
            ("evaluate", "MODEL", "train.jsonl", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
    "stories": World(
        stories, ("babi", "--data", "milk_train.txt", "--test", "milk_test.txt"),
        (*ENGINE, "engine.batch=8", "model.width=8"),
        (
            ("predict", "MODEL", "milk_test.txt", "--device", "cpu"),
            ("evaluate", "MODEL", "milk_test.txt", "--device", "cpu", "--json"),
        ),
        stores=False,
    ),
}  # fmt: skip


def result(folder: Path) -> dict[str, Any]:
    """All that a run came to: weights, log without its times, score, names of files; equal to the bit or not."""
    log = [_event(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]
    card = json.loads((folder / "model" / "headway.json").read_text(encoding="utf-8"))
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return {
        "weights": {path.name: path.read_bytes() for path in (folder / "model").glob("*.safetensors")},
        "log": log,
        "score": {key: value for key, value in card["score"].items() if key not in TIMES},
        "files": files,
    }


def _event(line: bytes) -> Any:
    """An event of a log without its times; a damaged line as it is."""
    try:
        return {key: value for key, value in json.loads(line).items() if key not in TIMES}
    except (ValueError, AttributeError):
        return line
