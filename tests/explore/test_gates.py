"""Gates as a picture: what is drawn is what the model had, and what cannot be drawn is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.errors import InputError
from headway.explore.gates import gates_of, gates_picture
from headway.models.recurrent import Gru, Recurrent, RecurrentConfig, Rnn, Stepwise

CONFIG = RecurrentConfig(width=10, layers=2, dropout=Stepwise(0.5))
WORDS = ["the", "cat", "sat", "$x$", "on", "a", "mat"]


def model(**changes):
    torch.manual_seed(0)
    return Recurrent(replace(CONFIG, **changes), 20)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"input", "forget", "candidate", "output", "hidden", "cell"}),
        ({"cell": Gru()}, {"reset", "update", "candidate", "hidden"}),
        ({"cell": Rnn()}, {"hidden"}),
    ],
)
def test_gates_are_those_of_the_layer_that_was_asked_for(changes, names):
    reader, ids = model(**changes), torch.randint(20, (7,))
    top, bottom = gates_of(reader, ids), gates_of(reader, ids, layer=0)
    assert set(top) == names and all(values.shape == (7, 10) for values in top.values())
    assert reader.training, "its mode stays as it was"
    expected, _ = reader.eval().read(ids[None])
    np.testing.assert_allclose(top["hidden"], expected[0].detach().numpy(), atol=1e-6)
    assert not np.allclose(top["hidden"], bottom["hidden"])


def test_a_picture_is_made_and_is_the_same_each_time(tmp_path: Path):
    gates = gates_of(model(), torch.randint(20, (7,)))
    first = gates_picture(gates, WORDS, tmp_path / "a.png", units=4, title="a mat")
    again = gates_picture(gates, WORDS, tmp_path / "b.png", units=4, title="a mat")
    assert first.read_bytes() == again.read_bytes() and first.stat().st_size > 2000


def test_what_cannot_be_drawn_is_one_line(tmp_path: Path):
    gates = gates_of(model(), torch.randint(20, (7,)))
    with pytest.raises(InputError, match="7 steps for 3 words"):
        gates_picture(gates, WORDS[:3], tmp_path / "a.png")
    with pytest.raises(InputError, match="no layer 2: this model has 2"):
        gates_of(model(), torch.randint(20, (7,)), layer=2)
    with pytest.raises(InputError, match="1 to 160 words, not 0"):
        gates_picture({}, [], tmp_path / "a.png")
