"""A memory network from stories to answers: training, linear start, resuming, predicting, evaluating, tracing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.cli.app import main
from headway.errors import InputError
from headway.folder import read_model
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from milk import DECK_C, write_stories
from small_runs import train_quietly

# Adam at a constant rate: a small world is learned in a few seconds.
QUICK = (
    "engine.device=cpu", "engine.steps=150", "optimiser=adam", "schedule.peak=0.02", "schedule.factor=1",
    "engine.clip=0",    "objective=labels", "validation.every=50", "validation.score_every=50",
)  # fmt: skip
SHORT = (
    "engine.device=cpu",
    "engine.checkpoint=4",
    "engine.snapshot=4",
    "validation.every=4",
    "validation.score_every=4",
)
MILK = [*DECK_C, "Where is the milk now?"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stories(tmp_path_factory.mktemp("stories") / "milk_train.txt", 300)


def run_of(recipe: str, data: Path, *settings: str) -> Any:
    return change(RECIPES[recipe].make(), [f"data.train={data}", *settings])


def train(run: Any, out: Path, resume: bool = False) -> dict[str, Any]:
    return train_quietly(run, out, resume).scores


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train(run_of("babi", data, *QUICK), out)["validation accuracy"] > 0.9
    return out


def told(*arguments: object, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """What a command writes: to stdout where it succeeds, to stderr where not."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert left.value.code == code, err
    return err if code else out


def test_the_milk_of_deck_c_is_found_and_the_hops_show_where(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = tmp_path / "story.txt"
    story.write_text("\n".join([*MILK, "Where is Fred?"]) + "\n", encoding="utf-8")
    lines = told("predict", trained, story, "--device", "cpu", capsys=capsys).splitlines()
    assert lines[0].startswith("office\t") and lines[0].endswith("\tWhere is the milk now?")
    assert [line.split(":")[0] for line in lines[1:4]] == ["  hop 1", "  hop 2", "  hop 3"]
    assert any("Joe travelled to the office." in line for line in lines[1:4])
    assert lines[4].startswith("kitchen\t")
    [found, _] = load(trained, "cpu").answer("\n".join([*MILK, "Where is Fred?"]))
    assert found.text == "office" and found.sentences == DECK_C and len(found.hops) == 3
    np.testing.assert_allclose(np.sum(found.hops, axis=1), 1, rtol=1e-5)
    numbers = [f"{number} {line}\n" for number, line in enumerate([*DECK_C, "Where is the milk now?\tnowhere\t5"], 1)]
    story.write_text("".join(numbers), encoding="utf-8")
    values = json.loads(told("predict", trained, story, "--json", "--device", "cpu", capsys=capsys))
    assert values["answer"] == "office" and values["wanted"] == "nowhere" and len(values["hops"][0]) == 6
    one_line = told("predict", trained, "--text", " ".join(MILK), "--device", "cpu", capsys=capsys)
    assert one_line.splitlines() == lines[:4]


def test_evaluate_counts_wrong_answers_file_by_file(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other_test.txt"
    other.write_text("1 Joe went to the office.\n2 Where is Joe?\tthe moon\t1\n", encoding="utf-8")
    found = json.loads(told("evaluate", trained, data, other, "--json", "--device", "cpu", capsys=capsys))
    lines = told("predict", trained, data, "--json", "--device", "cpu", capsys=capsys).splitlines()
    wrong = [one["answer"] != one["wanted"] for one in map(json.loads, lines)]
    assert found["tasks"] == {"milk": pytest.approx(np.mean(wrong)), "other": 1.0}
    assert found["error"] == pytest.approx((np.mean(wrong) + 1) / 2) and found["questions"] == 601
    said = told("evaluate", trained, data, other, "--device", "cpu", capsys=capsys)
    assert re.search(r"^other +1\.0000$", said, re.M) and "601 questions, 1 of 2 tasks" in said


def test_a_resumed_linear_start_ends_with_the_same_bits(data: Path, tmp_path: Path) -> None:
    """At a rate of 0 the loss of the second validation is that of the first, which only a checkpoint knows."""
    for peak in (0.0, 0.32):
        whole, parts = tmp_path / f"whole-{peak}", tmp_path / f"parts-{peak}"
        settings = (*SHORT, f"schedule.peak={peak}")
        train(run_of("babi", data, "engine.steps=12", *settings), whole)
        for steps in (4, 12):
            train(run_of("babi", data, f"engine.steps={steps}", *settings), parts, resume=steps > 4)
        logs = [(out / "log.jsonl").read_text(encoding="utf-8").splitlines() for out in (whole, parts)]
        losses = [[json.loads(line)["loss"] for line in log if '"validation"' in line] for log in logs]
        assert losses[0] == losses[1] and (peak or losses[0][0] == losses[0][1] != losses[0][2])
        first, second = (load_file(out / "model" / "model.safetensors") for out in (whole, parts))
        assert all(torch.equal(first[name], second[name]) for name in first) and "encoder.linear" in first


def test_a_linear_start_ends_when_the_loss_stops_falling(data: Path) -> None:
    run = run_of("babi", data)
    model = headway.models.build("memory", run.model, (20,), run.head)
    objective = run.objective.build(model)
    said = [objective.follow(loss) for loss in (3.0, 2.0, 2.5, 1.0, 9.0)]
    assert [bool(line) for line in said] == [False, False, True, False, False] and not bool(model.encoder.linear)
    again = run.objective.build(headway.models.build("memory", run.model, (20,), run.head))
    again.follow(3.0)
    other = run.objective.build(headway.models.build("memory", run.model, (20,), run.head))
    other.resume(again.carried())
    assert not other.follow(2.9) and other.follow(2.95)


def test_a_share_of_the_gradient_is_taken_while_it_is_linear(data: Path) -> None:
    from headway.data.stories import StoryBatches, StoryStore, answers_in, numbered, read_stories

    asked = read_stories([data])[:64]
    labels = answers_in(asked)
    store = StoryStore(
        asked, numbered(asked, labels), lambda texts: [[len(w) + 4 for w in t.split()] for t in texts], 50
    )
    run, batch = run_of("babi", data), StoryBatches(store, 16, 1).batch(0)
    torch.manual_seed(2)
    model = headway.models.build("memory", run.model, (20,), replace(run.head, labels=labels)).double()
    weights = list(model.parameters())
    found = {}
    for share in (1.0, 0.25):
        loss, _ = replace(run.objective, share=share).build(model)(batch)["loss"]
        found[share] = loss, torch.autograd.grad(loss, weights)
    assert found[1.0][0] == found[0.25][0]
    for whole, part in zip(found[1.0][1], found[0.25][1], strict=True):
        torch.testing.assert_close(0.25 * whole, part)


@pytest.mark.parametrize("recipe", ["babi-adjacent", "babi-deck-c"])
def test_other_forms_learn_too(recipe: str, data: Path, tmp_path: Path) -> None:
    assert train(run_of(recipe, data, *QUICK, "engine.steps=100"), tmp_path)["validation accuracy"] > 0.6
    assert load(tmp_path, "cpu").answer("\n".join(MILK))[0].sentences == DECK_C


def test_a_trace_lies_along_the_sentences(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(trained, "cpu")
    trace = model.trace("\n".join(MILK))
    assert trace.tracks["sentences"].labels == DECK_C and trace.tracks["question"].labels == (MILK[-1],)
    assert trace.axes["hops.0.attention.weights"] == ("head", "question", "sentences")
    [answer] = model.answer("\n".join(MILK))
    shown = [trace[f"hops.{hop}.attention.weights"][0, 0] for hop in range(3)]
    np.testing.assert_allclose(shown, answer.hops, rtol=1e-5)
    assert trace.about["labels"][0][0] == "office"
    assert [name for name in model.trace("\n".join(MILK), layers=[1]).tensors if "weights" in name] == [
        "hops.1.attention.weights"
    ]
    page = tmp_path / "page.html"
    told("explore", trained, "--text", " ".join(MILK), "--html", page, capsys=capsys)
    assert page.stat().st_size > 10_000
    assert "answer, trace" in repr(model)


def test_what_has_no_meaning_is_refused(trained: Path, data: Path, tmp_path: Path, capsys: Any) -> None:
    def refused(*words: object) -> str:
        return told(*words, "--device", "cpu", capsys=capsys, code=2)

    assert "--beam-size has no meaning" in refused("predict", trained, data, "--beam-size", 4)
    assert "--truncate has no meaning" in refused("predict", trained, data, "--truncate")
    assert "does not translate" in refused("translate", trained, data)
    assert "does not generate" in refused("generate", trained, "--prompt", "Joe")
    assert "there is no question in it" in refused("predict", trained, "--text", "Joe went to the office.")
    assert "no statement before it" in refused("predict", trained, "--text", "Where is Joe?")
    assert "give one file of stories" in refused("predict", trained, data, data)
    assert "no meaning" in refused("evaluate", trained, data, "--bootstrap", 100)
    with pytest.raises(InputError, match="stories are read word by word"):
        run_of("babi", data, "data.text.kind=bpe")
    with pytest.raises(InputError, match="data.noise must lie between 0 and 1, not 2"):
        run_of("babi", data, "data.noise=2.0")
    with pytest.raises(InputError, match="needs a head: set head=classes or answers"):
        replace(run_of("babi", data), head=None)
    with pytest.raises(InputError, match="family 'bert' does not learn from stories"):
        replace(RECIPES["classify"].make(), data=run_of("babi", data).data)
    with pytest.raises(InputError, match="family 'memory' does not learn from labelled-text"):
        replace(run_of("babi", data), data=RECIPES["classify"].make().data)
    long = tmp_path / "long.txt"
    long.write_text("".join(f"1 A sat.\n2 Who sat?\tthe {who} man\t1\n" for who in "abcdefghijkl"), encoding="utf-8")
    with pytest.raises(InputError, match="head.tied=true needs answers of one word"):
        train(
            run_of("babi-adjacent", long, "engine.device=cpu", "data.hold_out=0.5", f"data.valid={long}"),
            tmp_path / "t",
        )
    same = tmp_path / "same.txt"
    same.write_text("1 A sat.\n2 Who sat?\ta\t1\n" * 3, encoding="utf-8")
    with pytest.raises(InputError, match="every question has the answer 'a'"):
        train(run_of("babi", same, "engine.device=cpu", f"data.valid={same}"), tmp_path / "s")


def test_the_folder_keeps_answers_and_words(trained: Path) -> None:
    card = read_model(trained).card
    assert card.task == "story-answering" and card.head.labels == ("bathroom", "kitchen", "office")
    assert "task: story-answering" in (trained / "model" / "README.md").read_text(encoding="utf-8")
