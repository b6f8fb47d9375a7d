"""Rows of several kinds in one batch, and questions about pictures in files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from headway.batch import IGNORED
from headway.data.examples import arrays_in, names_in
from headway.data.image_files import picture
from headway.data.mixed import MixedBatches, Source, dealt_by, labelled
from headway.data.picture_questions import hold_out_picture_questions, read_picture_questions
from headway.data.scene_questions import COUNTS, drawn_questions, save_picture_questions
from headway.data.scenes import COLOURS, SHAPES, Scenes, placed
from headway.errors import InputError

SCALE = tuple(np.full((3, 1, 1), value, np.float32) for value in (128, 64))


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 3, 4, 4), dtype=np.uint8)


def sources() -> list[Source]:
    captions = [[[5, 6, 2], [7, 2]] for _ in range(7)]
    steps = Source(
        "demonstrations", pixels(10), np.arange(10), [[8, 9]] * 10, [[[30 + row, 31]] for row in range(10)],
        np.arange(20, dtype=np.float32).reshape(10, 2), shift=1,
    )  # fmt: skip
    return [Source("captions", pixels(7), np.arange(7), [()] * 7, captions, flip=True), steps]


def batches(**how) -> MixedBatches:
    return MixedBatches(sources(), [3, 1], 8, SCALE, 2, 1, 6, **how)


def test_every_batch_has_of_each_kind_its_share():
    made = batches(seed=3)
    for step in range(20):
        batch = made.batch(step)
        assert batch.kind_B.tolist() == [0] * 6 + [1] * 2
        assert batch.acts_B.tolist() == [0] * 6 + [1] * 2
        assert batch.counts["captions"] + batch.counts["demonstrations"] == batch.counts["nll"]
        assert batch.counts["loss"] == 8 and batch.lengths == (3, 2)


def test_each_source_is_gone_through_in_epochs_of_its_own():
    made = batches(seed=3)
    rows = [example for step in range(35) for example in made.batch(step).examples if example >= 7]
    assert [sorted(rows[at : at + 10]) for at in range(0, 70, 10)] == [list(range(7, 17))] * 7


def test_a_batch_is_a_function_of_seed_and_step():
    one, same, other = (batches(seed=seed).batch(5) for seed in (1, 1, 2))
    for (_, a), (_, b) in zip(one.tensors(), same.tensors(), strict=True):
        assert torch.equal(a, b)
    assert one.examples != other.examples


def test_every_row_is_judged_once_with_its_first_answer_and_its_own_picture():
    rows, made = [], batches(whole=True)
    for batch in made.epoch():
        kind = set(batch.kind_B.tolist())
        assert len(kind) == 1
        rows += batch.examples
        source, first = made.sources[kind.pop()], made.begins[int(batch.kind_B[0])]
        np.testing.assert_array_equal(batch.pixels_BCHW.numpy(), source.pixels_NCHW[np.array(batch.examples) - first])
    assert rows == list(range(17))
    assert next(made.epoch()).labels_BT[0].tolist() == [5, 6, 2, IGNORED]


def test_pictures_are_normalised_where_the_model_is():
    batch = batches(seed=1).batch(0)
    torch.testing.assert_close(batch.inputs.pixels_BCHW, (batch.pixels_BCHW.float() - 128) / 64)


@pytest.mark.parametrize(
    "prompt, answer, ids, labels",
    [
        ([8, 9], [5, 2], [8, 9, 1, 5], [IGNORED, IGNORED, 5, 2]),
        ([], [5, 2], [1, 5], [5, 2]),
        ([8, 9, 10, 11], [5, 6, 2], [9, 10, 11, 1, 5, 6], [IGNORED, IGNORED, IGNORED, 5, 6, 2]),
        ([8], [5] * 9, [1, 5, 5, 5, 5, 5], [5] * 6),
    ],
)
def test_a_row_is_a_prompt_the_start_and_an_answer(prompt, answer, ids, labels):
    assert labelled(prompt, answer, 1, 6) == (ids, labels)


@pytest.mark.parametrize(
    "shares, rows, dealt",
    [
        ((3, 1), 8, [6, 2]),
        ((1, 1, 1), 8, [3, 3, 2]),
        ((99, 1), 8, [7, 1]),
        ((100, 1, 1), 8, [6, 1, 1]),
        ((10, 1, 1), 3, [1, 1, 1]),
    ],
)
def test_rows_are_dealt_by_shares(shares, rows, dealt):
    found = dealt_by(shares, rows)
    assert found == dealt and sum(found) == rows


def test_questions_about_scenes_have_true_answers():
    scenes, numbers = Scenes(most=4), np.arange(60)
    found, where = drawn_questions(scenes, 7, numbers, 32), placed(scenes, 7, numbers, 32)
    for row, question, (answer,) in zip(found.picture_M, found.questions, found.answers, strict=True):
        shapes = [
            (list(COLOURS)[where.colours_BK[row, k]], SHAPES[where.kinds_BK[row, k]])
            for k in range(4) if where.reach_BK[row, k]
        ]  # fmt: skip
        *_, last = question.rstrip("?").split()
        if question.startswith("how many shapes"):
            assert answer == COUNTS[len(shapes)]
        elif question.startswith("how many"):
            assert answer == COUNTS[sum(shape == last for _, shape in shapes)]
        elif question.startswith("what"):
            assert [colour for colour, shape in shapes if shape == last] == [answer]
        else:
            assert answer == ("yes" if tuple(question.rstrip("?").split()[-2:]) in shapes else "no")
    assert {"yes", "no"} <= {answer for answers in found.answers for answer in answers}


def read(value):
    return picture(value, 3, (32, 32))


def test_questions_are_written_and_read(tmp_path):
    found = drawn_questions(Scenes(most=2), 7, np.arange(12), 32)
    save_picture_questions(tmp_path / "q.npz", found)
    again = read_picture_questions([tmp_path / "q.npz"], read)
    assert (again.questions, again.answers) == (found.questions, found.answers)
    np.testing.assert_array_equal(again.pixels_NCHW, found.pixels_NCHW)
    train, held = hold_out_picture_questions(again, 0.3)
    assert len(train) + len(held) == len(found) and len(train.pixels_NCHW) + len(held.pixels_NCHW) == 12
    for part in (train, held):
        assert set(part.picture_M) == set(range(len(part.pixels_NCHW)))
    at = found.questions.index(train.questions[3])
    first = next(n for n, name in enumerate(again.names) if name == train.names[3])
    np.testing.assert_array_equal(train.pixels_NCHW[train.picture_M[3]], again.pixels_NCHW[again.picture_M[first]])
    assert at <= first


GOOD = {"picture": "a.png", "question": "what?", "answer": "this"}


@pytest.mark.parametrize(
    "row, message",
    [
        ("{", "line 2: not JSON"),
        (json.dumps(GOOD | {"picture": "b.png"}), "line 2: there is no picture"),
        (json.dumps(GOOD | {"question": " "}), "line 2: the question is empty"),
        (json.dumps(GOOD | {"answer": ""}), "line 2: an answer is empty"),
        (json.dumps(GOOD | {"answers": []}), "line 2: 'answers' must be a list"),
        (json.dumps({"picture": "a.png", "question": "what?"}), "line 2: no key 'answer'"),
        (json.dumps(GOOD | {"picture": 3}), "line 2: 'picture' is int"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, message):
    from PIL import Image

    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "q.jsonl").write_text(json.dumps(GOOD) + "\n" + row + "\n")
    with pytest.raises(InputError, match=message):
        read_picture_questions([tmp_path / "q.jsonl"], read)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.array([0, 3])}, {"answers": np.array(["x"])}, {"rows": np.zeros(2)}, {"pictures": np.uint8(3)},
        {"pictures": np.zeros((2, 8, 8, 3))}, {"questions": np.array(["a?", " "])},
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(tmp_path, change):
    arrays = {
        "pictures": np.zeros((2, 8, 8, 3), np.uint8), "rows": np.array([0, 1]), "questions": np.array(["a?", "b?"]),
        "answers": np.array(["x", "y"]),
    }  # fmt: skip
    np.savez(tmp_path / "q.npz", **arrays | change)
    with pytest.raises(InputError, match=r"q\.npz"):
        read_picture_questions([tmp_path / "q.npz"], read)


def test_a_single_array_is_no_file_of_arrays(tmp_path):
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    for read_names in (names_in, arrays_in):
        with pytest.raises(InputError, match="single array"):
            read_names(tmp_path / "one.npz")


def test_pictures_of_demonstrations_are_moved_whole_with_their_edges():
    [_, steps] = sources()
    found, whole = steps.pixels(np.arange(10), (3, 1, 5)), steps.pixels(np.arange(10), ())
    assert not np.array_equal(found, whole)
    for seen, given in zip(found, whole, strict=True):
        wide = np.pad(given, ((0, 0), (1, 1), (1, 1)), "edge")
        high, across = given.shape[1:]
        cuts = [wide[:, y : y + high, x : x + across] for y in range(3) for x in range(3)]
        assert any(np.array_equal(seen, cut) for cut in cuts)
