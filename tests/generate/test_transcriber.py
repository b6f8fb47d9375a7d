"""Recordings to text: the tokens that `transformers` writes of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headway
from headway.generate.speech import Speaking
from speech_world import ID, features, write_whisper

LANGUAGE, END = "de", ID["<|endoftext|>"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("whisper")
    return write_whisper(folder), headway.load(folder, "cpu")


def ours(mine: Any, values: torch.Tensor, speaking: Speaking) -> list[list[int]]:
    x_BSD = mine.encode(list(values[:, None].numpy()))
    openings = [mine.tokens.opening(speaking, LANGUAGE)] * len(values)
    return [ids for ids, _ in mine.written(list(x_BSD), openings, speaking)]


def theirs(model: Any, values: torch.Tensor, **how: Any) -> list[list[int]]:
    found = model.generate(values, language=LANGUAGE, task="transcribe", force_unique_generate_call=True, **how)
    rows = [row[row.index(ID["<|transcribe|>"]) + 1 :] for row in found.tolist()]
    rows = [row[1:] if row[:1] == [ID["<|notimestamps|>"]] else row for row in rows]
    return [row[: row.index(END)] if END in row else row for row in rows]


@pytest.mark.parametrize("timestamps", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beam", [1, 3], ids=["greedy", "beam"])
def test_tokens_are_those_of_transformers(both: tuple[Any, Any], timestamps: bool, beam: int) -> None:
    model, mine = both
    values = features(5)
    how = {"return_timestamps": timestamps, "num_beams": beam}
    how |= {"early_stopping": True, "renormalize_logits": True} if beam > 1 else {}
    speaking = mine.settings({"timestamps": timestamps, "beam": beam})
    found, expected = ours(mine, values, speaking), theirs(model, values, **how)
    assert found == expected
    assert len({tuple(row) for row in found}) > 1, "all windows say the same: nothing was tested"
