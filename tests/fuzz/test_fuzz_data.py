"""Damaged data, traces, runs and plans: a command reads them or says in one line what is wrong; input that is refused
leaves nothing at the place of the output.

A short round damages each a few times; HEADWAY_FUZZ=N does it N times as often.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from attacked import OUT, PLACE, Attacked, Kind, drawn, make_all
from damaged import damage
from forked import ROUNDS, Record, call
from graph_files import graphs
from json_files import conversations, questions, summaries
from labels import csv_labels, json_labels, json_tags, treebank_tags, zipped_labels
from lines import fault
from media import (
    coco_scenes,
    many_forms_of_pictures,
    many_forms_of_sounds,
    numbered_pictures,
    picture_arrays,
    picture_table,
    sound_arrays,
)
from seen_files import mixed, scenes, trajectories
from worlds import SEEN, SMALL, labelled, pairs, speech, stories, strings, tagged, text

from headway.cli.app import main

Make = Callable[[Path], None]
TIMES = 1  # that each folder is damaged in a short round
ON_CPU = ("--device", "cpu", "--threads", "1")
SHORT = (
    "engine.device=cpu", "engine.steps=2", "engine.batch=64", "engine.workers=1", "validation.every=2",
    "validation.score_every=2", "validation.sentences=2", "engine.average=1", "engine.snapshot=2",
)  # fmt: skip
ONE_LAYER = (*SHORT, *SMALL, "model.layers=1", "data.text.size=300")
COUNTED = ("engine.device=cpu", "model.order=3")
TRANSLATOR = (
    *SHORT, *SMALL, "model.encoder_layers=1", "model.decoder_layers=1", "data.text.size=300", "data.text.min_count=1",
    "search.beam=1",
)  # fmt: skip
SPEECH = (
    *SHORT, "engine.batch=8", "data.rate=8000", "data.window=128", "data.hop=100", "data.text.kind=word",
    "data.text.size=8", "data.text.min_count=1", "model.bands=8", "model.places=8", "model.encoder_layers=1",
    "model.decoder_layers=1", "model.width=16", "model.heads=2", "model.inner=32", "model.max_length=8",
)  # fmt: skip
SOUNDS = (
    *SHORT, "data.rate=8000", "data.window=128", "data.hop=100", "model.image=8", "model.across=8",
    "model.layers=1", "model.width=16", "model.heads=2",
)  # fmt: skip
PICTURES = (*SHORT, "model.image=8", "model.patch=4", "model.layers=1", "model.width=16", "model.heads=2")
BOXES = (*SHORT, *SEEN, "model.layers=1", "head.layers=1", "head.queries=3")
CAPTIONS = (*SHORT, *SEEN, "model.encoder_layers=1", "model.decoder_layers=1", "search.beam=1")
STORIES = (*SHORT, "engine.batch=8", "model.width=8")
STRINGS = (*SHORT, "model.width=16", "search.beam=1")
STEERED = (*SHORT, "model.width=16", "model.layers=1", "model.max_length=4", "data.episodes=0")
GRAPHS = (*SHORT, "engine.batch=8", "model.width=16", "model.layers=1", "model.heads=2", "model.walk=3")
MIXED = (*SHORT, "engine.batch=6", "model.image=8", "model.stem.layers=1", "model.width=16", "model.heads=2",
         "model.layers=1", "model.bins=4")  # fmt: skip
TUNED = (*SHORT, "model.layers=1", "model.width=16", "model.heads=2", "model.max_length=64", "data.text.size=300")
LANGUAGES = ("--source", "en", "--target", "fr")


def train(
    recipe: str, *data: str, settings: tuple[str, ...] = ONE_LAYER, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    files = (f"{PLACE}/{name}" for name in data)
    return ("train", recipe, "--data", *files, *more, "--out", OUT, "--threads", "1", "--set", *settings)


def packed_text(folder: Path) -> None:
    """A folder of documents in every form."""
    text(folder)
    rows = (folder / "text.txt").read_text(encoding="utf-8").splitlines()
    documents = "".join(json.dumps({"text": row}) + "\n" for row in rows[:40])
    (folder / "a.jsonl").write_text(documents, encoding="utf-8")
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(rows[40:80]).encode()))
    (folder / "c.txt.zst").write_bytes(zstandard.ZstdCompressor().compress("\n".join(rows[80:]).encode()))


def rows_of(folder: Path) -> list[tuple[str, str]]:
    sides = ((folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr"))
    return list(zip(*sides, strict=True))


def tabbed_pairs(folder: Path) -> None:
    pairs(folder)
    lines = [f"{source}\t{target}\n" for source, target in rows_of(folder)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    for path in folder.glob("*.??"):
        path.unlink()


def json_pairs(folder: Path) -> None:
    pairs(folder)
    rows = [json.dumps({"translation": {"en": source, "fr": target}}) + "\n" for source, target in rows_of(folder)]
    (folder / "train.jsonl").write_text("".join(rows), encoding="utf-8")


def zipped_pairs(folder: Path) -> None:
    tabbed_pairs(folder)
    with zipfile.ZipFile(folder / "train.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "train.tsv", "train.tsv")
    (folder / "train.tsv").unlink()


def asked_csv(folder: Path) -> None:
    """A .csv beside a model that labels texts."""
    words = ("train", "classify", "--data", "train.tsv", "--out", "run", "--threads", "1", "--set", *ONE_LAYER)
    trained(labelled, *words)(folder)
    csv_labels(folder)
    (folder / "train.csv.gz").unlink()


def packed_stories(folder: Path) -> None:
    stories(folder)
    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        archive.add(folder / "milk_train.txt", "en/milk_train.txt")
    (folder / "milk_train.txt").unlink()


def asked_stories(folder: Path) -> None:
    words = ("train", "babi", "--data", "milk_train.txt", "--out", "run", "--threads", "1", "--set", *STORIES)
    trained(stories, *words)(folder)
    stories(folder)


def asked_questions(folder: Path) -> None:
    words = ("train", "answer", "--data", "train.json", "--out", "run", "--threads", "1", "--set", *ONE_LAYER)
    trained(questions, *words)(folder)
    questions(folder)


def trained(world: Make, *words: str) -> Make:
    """The data beside the folder that will be damaged, and a run on them, which is trained once for all kinds."""

    def make(folder: Path) -> None:
        shared = folder.parents[1] / words[1]
        if not shared.exists():
            shared.mkdir()
            world(shared)
            os.chdir(shared)
            try:
                main(list(words))
            except SystemExit as left:
                assert not left.code, left
        shutil.copytree(shared, folder.parent, dirs_exist_ok=True)

    return make


GPT = ("train", "gpt", "--data", "text.txt", "--out", "run", "--threads", "1", "--set", *ONE_LAYER)


def treebank(folder: Path) -> None:
    trained(text, *GPT)(folder)
    tree = [("the", 3, "det"), ("old", 3, "amod"), ("cat", 4, "nsubj"), ("sat", 0, "root")]
    rows = [
        "\t".join([str(at), word, *"_" * 4, str(head), name, "_", "_"]) for at, (word, head, name) in enumerate(tree, 1)
    ]
    (folder / "some.conllu").write_text("\n".join([*rows, ""] * 8) + "\n", encoding="utf-8")
    heading = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\n"
    row = "Ann met Bea and she ran.\tshe\t16\tAnn\t0\tTRUE\tBea\t8\tFALSE"
    (folder / "gap.tsv").write_text(heading + "".join(f"d-{n}\t{row}\n" for n in range(5)), encoding="utf-8")
    (folder / "marked.txt").write_text("the *cat* sat\na *cat* ran\nthe old *cat*\n", encoding="utf-8")
    (folder / "examples.tsv").write_text("the cat\tyes\nthe dog\tno\n", encoding="utf-8")


def texts_to_translate(folder: Path) -> None:
    words = ("train", "translate", "--data", "train.en", "train.fr", *LANGUAGES, "--out", "run", "--threads", "1")
    trained(pairs, *words, "--set", *TRANSLATOR)(folder)
    for name in ("test.en", "test.fr"):
        shutil.copy(folder.parent / name, folder / name)
    (folder / "test.en.gz").write_bytes(gzip.compress((folder / "test.en").read_bytes()))
    (folder / "links.txt").write_text("0-0 1p1\n" * 4, encoding="utf-8")


def trace(folder: Path) -> None:
    import headway

    trained(text, *GPT)(folder)
    model = headway.load(folder.parent / "run", "cpu")
    model.trace("the cat sat").save(folder / "one.safetensors")
    model.trace("the dog").save(folder / "two.safetensors", "uint8")


def described_run(folder: Path) -> None:
    trained(text, *GPT)(folder)
    shutil.copy(folder.parent / "run" / "run.json", folder / "run.json")


def finished_run(folder: Path) -> None:
    trained(text, *GPT)(folder)
    (folder.parent / "run").rename(folder / "run")


COMPARE = (
    "compare", "markov", "ladder-bow", "--data", "text.txt", "--tokens", "64", "--out", "both", "--threads", "1",
    "--set", "engine.device=cpu", "data.text.size=300",
)  # fmt: skip


def comparison(folder: Path) -> None:
    trained(text, *COMPARE)(folder)
    (folder.parent / "both").rename(folder / "both")


ALIGNMENT = ("analyse", "run", "PLACE/test.en", "PLACE/test.fr", "--what", "alignment", "--set", "gold=PLACE/links.txt")

ALL: dict[str, Kind] = {
    "text": Kind(text, (train("gpt", "text.txt"), train("markov", "text.txt", settings=COUNTED))),
    "packed-text": Kind(packed_text, (train("markov", "", settings=COUNTED),)),
    "pairs": Kind(pairs, (train("translate", "train.en", "train.fr", settings=TRANSLATOR, more=LANGUAGES),)),
    "tabbed-pairs": Kind(tabbed_pairs, (train("translate", "train.tsv", settings=TRANSLATOR, more=LANGUAGES),)),
    "json-pairs": Kind(json_pairs, (train("translate", "train.jsonl", settings=TRANSLATOR, more=LANGUAGES),)),
    "zipped-pairs": Kind(zipped_pairs, (train("translate", "train.zip", settings=TRANSLATOR, more=LANGUAGES),)),
    "strings": Kind(strings, (train("g2p", "train.tsv", settings=STRINGS, more=("--valid", "PLACE/valid.tsv")),)),
    "labels": Kind(labelled, (train("classify", "train.tsv", more=("--valid", "PLACE/valid.tsv")),)),
    "json-labels": Kind(json_labels, (train("classify", "train.jsonl"),)),
    "csv-labels": Kind(
        csv_labels,
        (
            train("classify", "train.csv"),
            train("classify", "train.csv.gz", more=("--text-column", "review", "--label-column", "3")),
        ),
    ),
    "asked-csv": Kind(
        asked_csv,
        (
            ("evaluate", "run", "PLACE/train.csv", "--label-column", "mood", *ON_CPU),
            ("predict", "run", "PLACE/train.csv", *ON_CPU),
        ),
    ),
    "zipped-labels": Kind(zipped_labels, (train("classify", "all.zip/train.tsv"),)),
    "tags": Kind(tagged, (train("tag", "train.conll", more=("--valid", "PLACE/valid.conll")),)),
    "treebank-tags": Kind(treebank_tags, (train("tag", "train.conllu"),)),
    "json-tags": Kind(json_tags, (train("tag", "train.jsonl"),)),
    "questions": Kind(questions, (train("answer", "train.json"), train("answer", "valid.jsonl"))),
    "asked-questions": Kind(
        asked_questions,
        (("evaluate", "run", "PLACE/train.json", *ON_CPU), ("predict", "run", "PLACE/valid.jsonl", *ON_CPU)),
    ),
    "pictures": Kind(many_forms_of_pictures, (train("classify-pictures", "pictures", settings=PICTURES),)),
    "sounds": Kind(many_forms_of_sounds, (train("classify-sounds", "sounds", settings=SOUNDS),)),
    "sound-arrays": Kind(sound_arrays, (train("classify-sounds", "train.npz", settings=SOUNDS),)),
    "masks": Kind(scenes, (train("scenes-masks", "train.npz", settings=(*SHORT, *SEEN, "model.layers=1")),)),
    "boxes": Kind(scenes, (train("scenes-boxes", "train.npz", settings=BOXES),)),
    "objects": Kind(scenes, (train("scenes-objects", "train.npz", settings=BOXES),)),
    "coco-objects": Kind(coco_scenes, (train("scenes-objects", "all.json", settings=BOXES),)),
    "captions": Kind(scenes, (train("scenes-captions", "train.npz", settings=CAPTIONS),)),
    "trajectories": Kind(
        trajectories,
        (train("clone", "train.npz", settings=STEERED), train("decision-transformer", "train.npz", settings=STEERED)),
    ),
    "mixtures": Kind(mixed, (train("mixture", "captions.npz", "questions.jsonl", "steps.npz", settings=MIXED),)),
    "summaries": Kind(summaries, (train("summarise", "mail.jsonl", settings=TRANSLATOR),)),
    "conversations": Kind(
        conversations, (train("tune", "talk.jsonl", settings=TUNED), train("reward", "pairs.jsonl"))
    ),
    "graphs": Kind(graphs, (train("graph", "train.jsonl", settings=GRAPHS),)),
    "speech": Kind(speech, (train("transcribe", "speech/all.csv", settings=SPEECH),)),
    "picture-table": Kind(picture_table, (train("classify-pictures", "all.csv", settings=PICTURES),)),
    "picture-arrays": Kind(picture_arrays, (train("classify-pictures", "train.npz", settings=PICTURES),)),
    "idx": Kind(
        numbered_pictures(packed=False), (train("classify-pictures", "train-images-idx3-ubyte", settings=PICTURES),)
    ),
    "packed-idx": Kind(
        numbered_pictures(packed=True), (train("classify-pictures", "train-images-idx3-ubyte.gz", settings=PICTURES),)
    ),
    "stories": Kind(
        stories,
        (train("babi", "milk_train.txt", settings=STORIES), train("babi-adjacent", "milk_train.txt", settings=STORIES)),
    ),
    "packed-stories": Kind(packed_stories, (train("babi", "all.tar.gz/en/milk_train.txt", settings=STORIES),)),
    "asked-stories": Kind(
        asked_stories,
        (
            ("predict", "run", "PLACE/milk_test.txt", *ON_CPU),
            ("evaluate", "run", "PLACE/milk_train.txt", "PLACE/milk_test.txt", *ON_CPU),
        ),
    ),
    "analysed": Kind(
        treebank,
        (
            ("analyse", "run", "PLACE/some.conllu", "--what", "relations", "--set", "least=1"),
            ("analyse", "run", "PLACE/gap.tsv", "--what", "pronouns"),
            ("analyse", "run", "PLACE/marked.txt", "--what", "contexts"),
            ("score", "run", "--text", "the", "--choice", "yes", "no", "--examples", "PLACE/examples.tsv", *ON_CPU),
        ),
    ),
    "translated": Kind(
        texts_to_translate,
        (
            ("translate", "run", "PLACE/test.en.gz", *ON_CPU),
            ("evaluate", "run", "PLACE/test.en", "PLACE/test.fr", "--bootstrap", "0", *ON_CPU),
            ("evaluate", "--hypotheses", "PLACE/test.en", "--references", "PLACE/test.fr", "--bootstrap", "0"),
            ALIGNMENT,
        ),
    ),
    "trace": Kind(
        trace,
        (
            ("explore", "PLACE/one.safetensors", "--html", f"{OUT}.html"),
            ("explore", "PLACE/two.safetensors", "--html", f"{OUT}.html", "--layers", "0", "--heads", "1"),
        ),
    ),
    "run.json": Kind(
        described_run,
        (
            ("train", "PLACE/run.json", "--out", OUT, "--dry-run"),
            ("train", "PLACE/run.json", "--out", OUT, "--threads", "1"),
            ("runs", PLACE),
        ),
    ),
    "run": Kind(
        finished_run,
        (
            ("runs", PLACE, "--json"),
            ("plot", "PLACE/run", "--out", f"{OUT}.png"),
            ("train", "PLACE/run", "--resume", "--threads", "1", "--set", "engine.steps=3"),
        ),
        (".lock",),
    ),
    "comparison": Kind(
        comparison, (tuple(f"{PLACE}/both" if word == "both" else word for word in COMPARE),), (".lock",)
    ),
}  # fmt: skip
KINDS = drawn(ALL) | {"translated": ALL["translated"]}  # which standard input needs too


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    make_all(KINDS, root)
    return root


@pytest.mark.parametrize("name", KINDS)
def test_damaged_data_is_read_or_named_in_one_line(name: str, folders: Path, record_property: Record) -> None:
    record_property("cases", TIMES * ROUNDS * (len(KINDS[name].uses) if ROUNDS > 1 else 1))
    faults = Attacked(KINDS[name], folders / name).faults(range(TIMES * ROUNDS))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("number", range(TIMES * ROUNDS))
def test_damaged_standard_input_is_read_or_named_in_one_line(
    number: int, folders: Path, tmp_path: Path, record_property: Record
) -> None:
    record_property("cases", 1)
    place = folders / "translated"
    shutil.copy(place / "test.en", tmp_path / "test.en")
    done = damage(tmp_path, number)
    if not (given := tmp_path / "test.en").is_file():
        return
    outcome = call(("translate", "run", *ON_CPU), cwd=place, seconds=60, memory=4 << 30, stdin=given)
    assert fault(outcome) is None, f"{done}: {fault(outcome)}\n{outcome.err[-400:]}"
