"""headway export from the shell, and other engines: what is written opens elsewhere, what cannot be is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def test_a_translator_for_transformers(headway: Headway, world: World, tmp_path: Path) -> None:
    answer = headway("export", world.run, tmp_path / "hf", "--format", "hf")
    assert (answer.code, answer.out) == (0, f"written: {tmp_path / 'hf'} (model_type pegasus)\n")
    text = "The old woman sees the dog."
    tokenizer, model = (
        AutoTokenizer.from_pretrained(tmp_path / "hf"),
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf"),
    )
    assert tokenizer(text).input_ids[-1] == model.config.eos_token_id
    (tmp_path / "a.en").write_text(text + "\n")
    mine, back = (headway("translate", model, tmp_path / "a.en", *DEVICE) for model in (world.run, tmp_path / "hf"))
    assert mine.code == back.code == 0 and mine.out == back.out != "\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--format", "tflite"), "--format is hf, ctranslate2, onnx, peft, gguf, arpa, not tflite"),
        ((), "pass --format hf, ctranslate2, onnx, peft for a folder"),
        (("--format", "hf", "--dtype", "int8"), "--dtype is for --format ctranslate2"),
        (("--format", "arpa"), "is of no known form"),
    ],
)
def test_a_wrong_wish_is_one_line(refuses: Callable[..., str], world: World, tmp_path: Path, arguments, told) -> None:
    assert told in refuses("export", world.run, tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_left_alone(refuses: Callable[..., str], world: World, tmp_path: Path) -> None:
    assert "is there already" in refuses("export", world.run, tmp_path, "--format", "hf")


def test_a_choice_that_stands_in_the_way_is_named(
    headway: Headway, refuses: Callable[..., str], world: World, tmp_path: Path
) -> None:
    assert headway(*world.train(tmp_path / "rotary"), "--set", "model.position=rotary", "engine.steps=1").code == 0
    line = refuses("export", tmp_path / "rotary", tmp_path / "hf", "--format", "hf")
    assert "model.position=rotary has no counterpart there" in line


@pytest.mark.parametrize("verb", [("translate",), ("generate", "--prompt", "x")], ids=["translate", "generate"])
def test_an_engine_that_is_none_is_refused(refuses: Callable[..., str], world: World, verb) -> None:
    assert "--engine is headway or ctranslate2, not tensorrt" in refuses(
        verb[0], world.run, *verb[1:], "--engine", "tensorrt"
    )


@pytest.mark.long
def test_another_engine_gives_the_same_lines(headway: Headway, refuses, world: World, tmp_path: Path) -> None:
    source = world.files("test")[0]
    assert headway("export", world.run, tmp_path / "fast", "--format", "ctranslate2", "--dtype", "int8").code == 0
    own = headway("translate", world.run, source, *DEVICE)
    direct = headway("translate", world.run, source, "--engine", "ctranslate2")
    exported = headway("translate", tmp_path / "fast", source, "--engine", "ctranslate2")
    assert own.code == direct.code == exported.code == 0, (direct.err, exported.err)
    assert len(exported.out.splitlines()) == len(own.out.splitlines())
    same = sum(a == b for a, b in zip(own.out.splitlines(), direct.out.splitlines(), strict=True))
    assert same >= len(own.out.splitlines()) // 2  # a model of thirty steps runs on to its limit, where the two differ
    for wrong, told in (
        (("--attention",), "--attention"), (("--max-ratio", "1"), "--max-ratio"), (("--device", "cuda"), "--device"),
        (("--dtype", "int4"), "--dtype"),
    ):  # fmt: skip
        assert told in refuses("translate", world.run, source, "--engine", "ctranslate2", *wrong)
    assert "only --engine ctranslate2 runs it" in refuses("translate", tmp_path / "fast", source, *DEVICE)


def test_weights_of_torch_are_imported_with_what_they_do_not_say(headway: Headway, refuses, tmp_path: Path) -> None:
    from torch_world import write_torch_transformer

    theirs, out = tmp_path / "theirs", tmp_path / "model"
    theirs.mkdir()
    write_torch_transformer(theirs)
    assert "--heads N" in refuses("translate", theirs)
    assert "norm_first" in refuses("import", theirs, out, "--heads", "4", "--set", "norm_frist=true")
    assert not out.exists()
    assert headway("import", theirs, out, "--heads", "4", "--set", "pad_source_to=18").out == f"model: {out}\n"
    assert "says all of it" in refuses("import", write_hf(tmp_path / "hf"), tmp_path / "other", "--heads", "4")


def write_hf(folder: Path) -> Path:
    from foreign_world import write_language_model

    write_language_model(folder, "gpt2")
    return folder
