"""Wrong use: one line that names what is wrong and, where one is near, the right name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World, listing, write

Refuses = Callable[..., str]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "engine.stpes=5"], ("engine.stpes", "did you mean 'steps'")),
        (["--set", "modle.width=5"], ("modle", "did you mean 'model'")),
        (["--set", "engine.steps.more=5"], ("engine.steps.more", "no keys below")),
        (["--set", "engine.steps=many"], ("engine.steps", "whole number", "many")),
        (["--set", "engine.steps=2.5"], ("engine.steps", "whole number")),
        (["--set", "engine.tensorboard=1"], ("engine.tensorboard", "true or false")),
        (["--set", "model.dropout=high"], ("model.dropout", "a number")),
        (["--set", "model.dropout=1.5"], ("model.dropout", "below 1")),
        (["--set", "schedule.peak=-1"], ("schedule.peak", "0 or more")),
        (["--set", "objective.smoothing=2"], ("objective.smoothing", "below 1")),
        (["--set", "schedule.warmup=-5"], ("schedule.warmup", "0 or more")),
        (["--set", "optimiser.beta1=5"], ("optimiser.beta1", "below 1")),
        (["--set", "engine.seconds=-1"], ("engine.seconds", "0 or more")),
        (["--set", "engine.average=-3"], ("engine.average", "0 or more")),
        (["--set", "validation.patience=-1"], ("validation.patience", "0 or more")),
        (["--set", "schedule=staircase", "schedule.every=-5"], ("schedule.every", "at least 1")),
        (["--set", "schedule=cosine", "schedule.floor=7"], ("schedule.floor", "between 0 and 1")),
        (["--set", "model.position=relative", "model.position.buckets=1"], ("model.position.buckets", "at least 4")),
        (["--set", "model.position=relative", "model.position.farthest=16"], ("model.position.farthest", "above 16")),
        (["--set", "data.hold_out=0"], ("data.hold_out", "at least 1")),
        (["--set", "model.position=rotray"], ("model.position", "rotray", "rotary")),
        (["--set", "engine.steps"], ("engine.steps", "key=value")),
        (["--set"], ("--set needs a value",)),
        (["--set", "engine.steps=0"], ("engine.steps", "at least 1")),
        (["--set", "model.heads=0"], ("model.heads", "at least 1")),
        (["--set", "model.heads=3"], ("model.heads 3", "multiple")),
        (["--set", "validation.every=0"], ("validation.every", "at least 1")),
        (["--set", "validation.tokenize=13b"], ("13b", "did you mean '13a'")),
        (["--set", "search.beam=0"], ("beam", "at least 1")),
        (["--set", "data.text.size=10"], ("text.size", "10")),
        (["--size", "tini"], ("tini", "did you mean 'tiny'")),
        (["--device", "abacus"], ("abacus", "cpu")),
        (["--dtype", "float31"], ("float31", "did you mean 'float32'")),
        (["--init", "nowhere"], ("nowhere",)),
        (["--init", "RUN", "--size", "tiny"], ("--init", "--size")),
        (["--threads", "few"], ("--threads",)),
        (["--threads", "-1"], ("--threads",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_train_refuses(
    refuses: Refuses, world: World, tmp_path: Path, options: list[str], words: tuple[str, ...]
) -> None:
    given = [world.run if option == "RUN" else option for option in options]
    device = [] if "--device" in options else DEVICE
    line = refuses("train", "translate", *world.data, "--out", tmp_path / "runs" / "x", *device, *given)
    assert all(word in line for word in words), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["model.word_dropout=1.5"], ("model.word_dropout", "below 1")),
        (["model.inner=-5"], ("model.inner", "0 or more")),
        (["model.shared_heads=5"], ("model.heads 4", "model.shared_heads 5")),
        (["model.position=rotary", "model.width=12"], ("rotary", "3 wide")),
    ],
)
def test_train_gpt_refuses(refuses: Refuses, tmp_path: Path, options: list[str], words: tuple[str, ...]) -> None:
    text = write(tmp_path, "text.txt", ["one line of text, and another"] * 200)
    settings = ["model.heads=4", "model.width=16", "model.max_length=8", "engine.steps=2", *options]
    line = refuses("train", "gpt", "--data", text, "--out", tmp_path / "x", *DEVICE, "--set", *settings)
    assert all(word in line for word in words), line


def test_an_unknown_recipe_is_answered_with_the_nearest(refuses: Refuses) -> None:
    assert "did you mean 'multi30k-en-de'" in refuses("train", "multi30k-en-dee")


def test_a_text_in_the_place_of_a_recipe_is_shown_where_it_belongs(refuses: Refuses, world: World) -> None:
    source, _ = world.files("test")
    assert f"is a file and no recipe; data come behind one: headway train gpt --data {source}" in refuses(
        "train", source
    )


def test_wrong_use_is_answered_with_an_example(refuses: Refuses) -> None:
    for call in (["train"], ["train", "translate", "a.en", "a.de"], ["train", "translate", "--step-count", "5"]):
        line = refuses(*call)
        assert "headway train RECIPE --data FILE... --set engine.steps=5000" in line
    assert "headway translate MODEL FILE" in refuses("translate")


def test_a_file_where_pictures_belong_is_refused_before_any_work(refuses: Refuses, world: World) -> None:
    source, target = world.files("test")
    assert "--picture takes a folder" in refuses("translate", world.run, source, "--picture", target, *DEVICE)


def test_a_run_where_a_recipe_belongs_is_told_how_to_do_it_again(refuses: Refuses, world: World) -> None:
    assert f"headway train {world.run / 'run.json'}" in refuses("train", world.run)


def test_a_file_where_the_model_belongs_is_told_the_order(refuses: Refuses, world: World) -> None:
    source, target = world.files("test")
    assert "headway translate MODEL FILE" in refuses("translate", source, world.run, *DEVICE)
    for data in ([target], [target, world.run], []):
        assert "headway evaluate MODEL SOURCE REFERENCE" in refuses("evaluate", source, *data, *DEVICE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ("cannot be read",)),
        ("[]", ("object",)),
        ('{"recipe": "x"}', ("data", "missing")),
        ('{"recipe": "x", "data": {}, "model": {"widht": 3}}', ("model.widht", "did you mean 'width'")),
    ],
)
def test_a_run_file_that_is_no_run_is_named(
    refuses: Refuses, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = write(tmp_path, "run.json", [text])
    line = refuses("train", path, "--out", tmp_path / "x")
    assert all(word in line for word in (str(path), *words)), line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--beam-size", "0"], ("beam", "at least 1")),
        (["--beam-size", "2", "--best", "3"], ("best", "beam")),
        (["--best", "0"], ("best",)),
        (["--length-penalty", "nan"], ("length_penalty must be a finite number, not nan",)),
        (["--length-penalty=-inf"], ("length_penalty must be a finite number, not -inf",)),
        (["--max-ratio", "nan"], ("max_ratio must be a finite number, not nan",)),
        (["--max-ratio", "inf"], ("max_ratio must be a finite number, not inf",)),
        (["--max-ratio", "-1"], ("max_ratio must not be negative",)),
        (["--max-extra", "-1"], ("max_extra must not be negative",)),
        (["--min-length", "-1"], ("min_length must not be negative",)),
        (["--max-ratio", "0", "--max-extra", "0"], ("max_ratio", "at least one token")),
        (["--batch-size", "0"], ("--batch-size",)),
        (["--device", "abacus"], ("abacus", "cpu")),
        (["--dtype", "float31"], ("float31", "float32")),
        (["--output", "FOLDER"], ("folder",)),
        (["--output", "FOLDER/none/a.fr"], ("none", "make it first")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_translate_refuses(
    refuses: Refuses, world: World, tmp_path: Path, options: list[str], words: tuple[str, ...]
) -> None:
    given = [option.replace("FOLDER", str(tmp_path)) for option in options]
    device = [] if "--device" in options else DEVICE
    output = [] if "--output" in options else ["--output", tmp_path / "a.fr"]
    line = refuses("translate", world.run, world.root / "test.en", *device, *output, *given)
    assert all(word in line for word in words), line
    assert list(tmp_path.iterdir()) == []


def test_evaluate_refuses_before_it_translates(refuses: Refuses, world: World, tmp_path: Path) -> None:
    given = ["evaluate", world.run, *world.files("test"), *DEVICE, "--output", tmp_path / "kept"]
    assert "did you mean '13a'" in refuses(*given, "--tokenize", "13b")
    assert "too few" in refuses(*given, "--bootstrap", 3)
    assert "beam must be at least 1" in refuses(*given, "--beam-size", 0)
    assert "length_penalty must be a finite number" in refuses(*given, "--length-penalty", "inf")
    assert "folder" in refuses("evaluate", world.run, *world.files("test"), *DEVICE, "--output", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_read_is_refused_and_stays_as_it_was(refuses: Refuses, world: World, tmp_path: Path) -> None:
    """By whatever name: the file itself, a link to it, a way around."""
    source, target = write(tmp_path, "a.en", ["the dog"]), write(tmp_path, "a.fr", ["le chien"])
    (tmp_path / "link.fr").symlink_to(target)
    around = tmp_path / ".." / tmp_path.name / "a.en"
    before = listing(tmp_path)
    for call in (
        ["translate", world.run, source, *DEVICE, "--output", source],
        ["translate", world.run, source, *DEVICE, "--output", around],
        ["evaluate", world.run, source, target, *DEVICE, "--output", source],
        ["evaluate", world.run, source, target, *DEVICE, "--output", tmp_path / "link.fr"],
        ["evaluate", "--hypotheses", source, "--references", target, "--output", source],
        ["evaluate", "--hypotheses", source, "--references", target, "--output", target],
    ):
        line = refuses(*call)
        assert f"--output {call[-1]} is a file that is read here" in line and "choose another name" in line
        assert listing(tmp_path) == before


def test_evaluate_needs_a_model_with_data_or_two_files(refuses: Refuses, world: World) -> None:
    source, target = world.files("test")
    assert "--references" in refuses("evaluate", "--hypotheses", target)
    assert "--hypotheses" in refuses("evaluate", "--references", target)
    assert "not both" in refuses("evaluate", world.run, "--hypotheses", target, "--references", target)
    assert "SOURCE REFERENCE" in refuses("evaluate")
    assert "SOURCE REFERENCE" in refuses("evaluate", world.run)
    assert "cannot tell source from target" in refuses("evaluate", world.run, source, *DEVICE)


def test_hypotheses_and_references_must_match_line_by_line(refuses: Refuses, world: World, tmp_path: Path) -> None:
    few = write(tmp_path, "few.fr", ["un", "deux"])
    line = refuses("evaluate", "--hypotheses", few, "--references", world.root / "test.fr")
    assert str(few) in line and "2 lines" in line and "20" in line


def test_a_wrong_run_of_an_earlier_folder_changes_nothing_there(refuses: Refuses, world: World) -> None:
    before = listing(world.run)
    refuses("train", world.run / "run.json", "--out", world.run, "--overwrite", "--set", "model.heads=3")
    assert listing(world.run) == before
    assert json.loads((world.run / "run.json").read_text(encoding="utf-8"))["recipe"] == "translate"


@pytest.mark.parametrize("words", [("train", "gpt", "--data", "a\udcffb"), ("train", "gpt", "--out", "a\udcffb")])
def test_an_argument_that_is_not_utf_8_is_refused(headway: Headway, words: tuple[str, ...]) -> None:
    """run.json could not hold it, nor could a safetensors file lie there."""
    answer = headway(*words)
    assert answer.code == 2 and answer.err == "headway: the argument 'a\\udcffb' is not UTF-8\n"
