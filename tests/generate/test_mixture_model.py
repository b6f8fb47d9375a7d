"""A model of pictures, texts and actions: what it learns from a batch, what it answers, and how it acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.batch import IGNORED
from headway.data.annotated_files import save_annotated
from headway.data.scene_questions import drawn_questions, save_picture_questions
from headway.data.scenes import Scenes, drawn
from headway.data.trajectories import read_trajectories, save_trajectories
from headway.errors import InputError
from headway.generate.acting import episodes, gathered
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.mixing import Mixing
from headway.tasks.start import RunContext
from headway.train.log import Log
from headway.train.parallel.ranks import ALONE
from headway.worlds.lane import LaneKeeping
from headway.worlds.policies import policy_named
from small_policies import opened
from small_runs import call

SET = (
    "engine.device=cpu", "engine.steps=2", "engine.batch=9", "model.image=16", "model.stem=patches", "model.patch=4",
    "model.width=32", "model.heads=2", "model.layers=2", "model.bins=8", "model.max_length=24", "validation.every=2",
    "validation.score_every=2", "model.dropout=0",
)  # fmt: skip
FILES = ("captions.npz", "questions.npz", "steps.npz")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    folder = tmp_path_factory.mktemp("mixed")
    found = drawn(Scenes(most=2), 3, np.arange(20), 16)
    save_annotated(folder / "captions.npz", found)
    Image.fromarray(found.pixels_NCHW[0].transpose(1, 2, 0)).save(folder / "0.png")
    save_picture_questions(folder / "questions.npz", drawn_questions(Scenes(most=2), 4, np.arange(12), 16))
    world = LaneKeeping()
    some = list(episodes([world], policy_named("expert", world), 8, (3,), noise=0.3, most=20, pictures=24))
    save_trajectories(folder / "steps.npz", gathered(world, some))
    return folder


def settings(place: Path, *files: str) -> list[str]:
    return [*SET, f"data.train={','.join(str(place / name) for name in files or FILES)}"]


@pytest.fixture(scope="module")
def model(place: Path) -> Any:
    return opened("mixture", place, *settings(place))


@pytest.fixture(scope="module")
def task(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Mixing:
    run = change(RECIPES["mixture"].make(), settings(place))
    out = tmp_path_factory.mktemp("task")
    return Mixing(run, RunContext(out, Log(quiet=True), torch.device("cpu"), torch.float32, ALONE))


def test_the_loss_counts_every_row_alike_and_every_kind_apart(task):
    batch, model = task.batch(0), task.model
    with torch.no_grad():
        terms = task.run.objective.build(model).eval()(batch)
        logits = model(batch.inputs, batch.ids_BT).double()
    each = F.cross_entropy(logits.flatten(0, 1), batch.labels_BT.flatten(), ignore_index=IGNORED, reduction="none")
    row_B = each.view(batch.labels_BT.shape).sum(1)
    expected = sum(row_B[batch.kind_B == kind].sum() / length for kind, length in enumerate(batch.lengths))
    assert float(terms["loss"][0]) == pytest.approx(float(expected), rel=1e-5)
    assert float(terms["nll"][0]) == pytest.approx(float(row_B.sum()), rel=1e-5)
    for kind, name in enumerate(batch.kinds):
        assert float(terms[name][0]) == pytest.approx(float(row_B[batch.kind_B == kind].sum()), rel=1e-5)
    assert batch.counts["loss"] == len(batch.ids_BT) == 9


def test_a_validation_weighs_kinds_by_their_shares(task):
    objective, means = task.run.objective.build(task.model).eval(), {}
    with torch.no_grad():
        for batch in task.valid.epoch():
            kind = batch.kinds[int(batch.kind_B[0])]
            means.setdefault(kind, []).append((float(objective(batch)["loss"][0]), len(batch.examples)))
        losses = task.valid_losses(objective)
    each = [sum(a for a, _ in found) / sum(b for _, b in found) for found in means.values()]
    assert losses["loss"] == pytest.approx(np.mean(each), rel=1e-6)


def test_a_validation_reads_every_row(task):
    with torch.no_grad():
        losses = task.valid_losses(task.run.objective.build(task.model).eval())
    assert set(losses) == {"loss", "nll", "captions", "questions", "demonstrations"}
    assert all(np.isfinite(value) and value > 0 for value in losses.values())
    rows = {source.kind: len(source) for source in task.sources["valid"]}
    seen = [batch.kinds[int(batch.kind_B[0])] for batch in task.valid_batches() for _ in batch.examples]
    assert {kind: seen.count(kind) for kind in rows} == rows


def greedy(model: Any, pixels: Any, question: str) -> str:
    """Token after token, each from the whole row."""
    ids = [*model.ids([question])[0], model.symbols.start]
    inputs = model.seen([pixels.transpose(1, 2, 0)], np.zeros((1, model.observations.config.size), np.float32))
    inputs.acts_B.zero_()
    written: list[int] = []
    with torch.inference_mode():
        while len(ids) + len(written) < model.limit:
            logits = model.model(inputs, torch.tensor([[*ids, *written]]))[0, -1]
            logits[list(model.never)] = -torch.inf
            token = int(logits.argmax())
            if token == model.symbols.end:
                break
            written.append(token)
    return str(model.tokenizer.decode(written))


def test_answers_are_the_most_probable_tokens_whatever_is_asked_beside(model, place):
    pixels = drawn(Scenes(most=2), 9, np.arange(5), 16).pixels_NCHW
    questions = ["", "how many shapes are there?", "is there a red circle?", "", "what colour is the square?"]
    together = model.ask_read(pixels, questions, beam=1)
    assert together == [greedy(model, *pair) for pair in zip(pixels, questions, strict=True)]
    assert (
        model.ask(str(place / "0.png"), "how many shapes are there?")
        == model.ask([str(place / "0.png")], "how many shapes are there?")[0]
    )


def test_it_acts_as_the_model_says(model, place):
    found = read_trajectories([place / "steps.npz"])
    acted_KA = model.actions_of(found)
    states = model.observations.encode(found.states_KS[:3])
    prompt = [*model.ids([found.tasks[0].command])[0], model.symbols.start]
    inputs = model.seen(found.pictures_KPP3[:3], states)
    direct = model.model.acted(inputs, torch.tensor([prompt] * 3))
    np.testing.assert_allclose(acted_KA[:3], direct.numpy(), atol=1e-6)
    [episode] = model.play(1, most=5)
    assert len(episode.rewards) == 5 and len({tuple(np.ravel(one)) for one in episode.actions}) >= 1
    report = Mixing.evaluate(model, [str(place / "steps.npz")], {})
    wanted = np.square(acted_KA - model.actions.encode(found.actions_K)).mean()
    assert report.values["mse"] == pytest.approx(float(wanted))


def test_a_trace_shows_where_the_words_look_in_the_picture(model, place):
    trace = model.trace(f"{place / '0.png'}|how many shapes are there?", "two")
    track = trace.tracks["tokens"]
    places = model.model.config.given
    assert trace.about["grid"] == [4, 4, 0] and trace.about["question"] == "how many shapes are there?"
    assert len(track) == places + len(model.ids(["how many shapes are there?"])[0]) + 1 + len(model.ids(["two"])[0])
    weights = trace.tensors["decoder.1.attention.weights"]
    assert weights.shape[-2:] == (len(track), len(track))
    # The places see each other and no word; a word sees all of them.
    assert np.all(weights[..., :places, places:] == 0) and np.all(weights[..., places:, :places] > 0)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_a_policy_shows_where_it_looks(model):
    policy = model.policy()
    policy.watched = True
    model_world = LaneKeeping()
    [_] = list(episodes([model_world], policy, 1, (1, 1), most=3, pictures=24))
    assert [look.shape for look in policy.looks] == [(4, 4)] * 3


def test_a_command_of_any_length_leaves_room_for_the_action(model):
    long = model.commanded("keep to the lane " * 20, 2)
    assert long.shape == (2, model.limit - model.actions.config.size + 1)
    inputs = model.seen(np.zeros((2, 24, 24, 3), np.uint8), np.zeros((2, 7), np.float32))
    assert model.model.acted(inputs, long).shape == (2, 1)
    assert model.commanded("keep to the lane", 1)[0, -1] == model.symbols.start


def test_what_is_too_long_or_nothing(model, place):
    assert model.ask([]) == []
    with pytest.raises(InputError, match=f"at most {model.limit - 2}"):
        model.ask(str(place / "0.png"), "red " * (model.limit - 1))
    assert isinstance(model.ask(str(place / "0.png"), "red " * (model.limit - 2)), str)
    with pytest.raises(InputError, match="question and answer have"):
        model.trace(str(place / "0.png"), "red " * model.limit)


def test_a_model_without_demonstrations_answers_and_does_not_act(place, tmp_path):
    alone = opened("mixture", tmp_path, *settings(place, "captions.npz"))
    assert isinstance(alone.ask(str(place / "0.png")), str)
    more = ["train", "mixture", "--init", tmp_path / "run", "--out", tmp_path / "more", "--set", *SET]
    code, _, err = call(*more, "--data", place / "captions.npz", place / "steps.npz")
    assert code == 2 and "learned from no demonstrations" in err
    code, _, err = call("play", tmp_path / "run", "--episodes", 1, "--device", "cpu")
    assert code == 2 and "no demonstrations" in err


def test_a_trained_model_learns_on_from_what_it_knows(place, model, tmp_path):
    run = place / "run"
    more = ["train", "mixture", "--init", run, "--out", tmp_path / "more", "--set", *SET, "engine.steps=1"]
    code, _, err = call(*more, "--data", *(place / name for name in FILES))
    assert code == 0, err
    again = load(tmp_path / "more", "cpu")
    assert again.observations.config == model.observations.config
    assert torch.equal(again.model.bins.middles_AV, load(run, "cpu").model.bins.middles_AV)


@pytest.mark.parametrize(
    "files, message",
    [
        (("none.npz",), "no file"),
        (("odd.npz",), "must have one of the arrays"),
        (("plain.txt",), "cannot read"),
        (("still.npz",), "no pictures"),
    ],
)
def test_files_of_no_kind_are_refused(place, tmp_path, files, message):
    np.savez(place / "odd.npz", things=np.zeros(3))
    (place / "plain.txt").write_text("a text\n")
    world = LaneKeeping()
    some = list(episodes([world], policy_named("expert", world), 2, (3,), most=5))
    save_trajectories(place / "still.npz", gathered(world, some))
    data = [str(place / name) for name in files]
    code, _, err = call("train", "mixture", "--data", *data, "--out", tmp_path / "out", "--set", *SET)
    assert code == 2 and message in err and "Traceback" not in err
