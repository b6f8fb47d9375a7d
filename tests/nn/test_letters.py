"""Letters of words beside torch's own convolution and LSTM, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import TextInputs
from headway.models.letters import LetterCnn, LetterLstm
from headway.models.text_cnn import Neighbours, TextCnn, TextCnnConfig
from headway.models.text_rnn import TextRnn, TextRnnConfig
from headway.text.framing import frame
from headway.text.tokenizer import TextOptions, Tokenizer

WORDS = ["a", "hall", "extraordinarily", "naïve", "no"]


def letters(words: list[str] = WORDS, most: int = 12) -> Tensor:
    found = np.zeros((1, len(words), most), np.uint8)
    for row, word in zip(found[0], words, strict=True):
        written = word.encode()[:most]
        row[: len(written)] = np.frombuffer(written, np.uint8) + 1
    return torch.from_numpy(found)


def part(choice: Any) -> Any:
    torch.manual_seed(0)
    return choice.build().double().eval()


@torch.no_grad()
def test_convolved_letters_are_torchs_convolution_of_each_word_alone() -> None:
    ours = part(LetterCnn(5, 7, 3))
    theirs = nn.Conv1d(5, 7, 3, padding=1).double()
    theirs.weight.copy_(ours.convolution.map.weight.unflatten(1, (3, 5)).transpose(1, 2))
    theirs.bias.copy_(ours.convolution.map.bias)  # type: ignore[union-attr]
    found = ours(torch.zeros(1, len(WORDS), 2).double(), letters())
    for word, row in zip(WORDS, found[0], strict=True):
        ids = torch.tensor([byte + 1 for byte in word.encode()[:12]])
        torch.testing.assert_close(row[2:], theirs(F.embedding(ids, ours.letters_AL).T).amax(1))
        assert not row[:2].any()


@torch.no_grad()
def test_recurrent_letters_are_the_last_states_of_torchs_lstm_in_both_directions() -> None:
    ours = part(LetterLstm(5, 4))
    theirs = nn.LSTM(5, 4, bidirectional=True).double()
    for end, layer in (("", ours.cells.forwards), ("_reverse", ours.cells.backwards)):
        getattr(theirs, f"weight_ih_l0{end}").copy_(layer.cell.from_input.weight)
        getattr(theirs, f"weight_hh_l0{end}").copy_(layer.cell.from_state.weight)
        getattr(theirs, f"bias_ih_l0{end}").copy_(layer.cell.from_input.bias)
        getattr(theirs, f"bias_hh_l0{end}").zero_()
    found = ours(torch.zeros(1, len(WORDS), 0).double(), letters())
    for word, row in zip(WORDS, found[0], strict=True):
        ids = torch.tensor([byte + 1 for byte in word.encode()[:12]])
        torch.testing.assert_close(row, theirs(F.embedding(ids, ours.letters_AL))[1][0].flatten())


@pytest.mark.parametrize("choice", [LetterCnn(5, 4), LetterLstm(5, 4)])
def test_what_has_no_letters_has_finite_vectors_and_gradients(choice: Any) -> None:
    """Special tokens and padding."""
    ours = choice.build()
    found = ours(torch.zeros(2, 3, 1), torch.zeros(2, 3, 6, dtype=torch.uint8))
    found.sum().backward()
    assert found.isfinite().all() and all(weight.grad.isfinite().all() for weight in ours.parameters())


def test_tokens_are_spelled_as_the_text_has_them_whatever_the_vocabulary_knows() -> None:
    tokenizer = Tokenizer.train(["the cat"], TextOptions(kind="word", lowercase=True, min_count=1))
    [one] = frame(tokenizer, ["The  Naïve cat"], 9, letters=4)
    expected = ["", "The", "Na", "cat", ""]
    assert one.letters is not None and one.letters.shape == (5, 4)
    assert [bytes(row[row > 0] - 1) for row in one.letters] == [b"", b"The", "Naï".encode(), b"cat", b""], expected
    [pair] = frame(tokenizer, [("the cat", "Dog")], 9, letters=4)
    assert pair.letters is not None and bytes(pair.letters[4][:3] - 1) == b"Dog"
    assert frame(tokenizer, ["the cat"], 9)[0].letters is None


ENCODERS = {
    "one-way": lambda: TextRnn(TextRnnConfig(width=6, layers=2, words=5, letters=LetterCnn(4, 3)), 20),
    "both-ways": lambda: TextRnn(TextRnnConfig(width=6, layers=2, direction="both", letters=LetterLstm(4, 3)), 20),
    "neighbours": lambda: TextCnn(TextCnnConfig(6, Neighbours((3, 2), 5), letters=LetterCnn(4, 3)), 20),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_padded_text_has_the_vectors_that_it_has_alone(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = ENCODERS[kind]().double().eval()  # type: ignore[attr-defined]
    ids, spelled, lengths = torch.randint(4, 20, (3, 5)), letters().repeat(3, 1, 1), torch.tensor([5, 1, 3])
    together = model.encode(TextInputs(ids, lengths, letters_BTC=spelled)).x_BTD
    assert model.letters == 24 and model.per_token and together.shape == (3, 5, model.width)
    for row, length in enumerate(lengths.tolist()):
        alone = model.encode(TextInputs(ids[row : row + 1, :length], letters_BTC=spelled[row : row + 1, :length])).x_BTD
        torch.testing.assert_close(together[row, :length], alone[0])
    other = model.encode(TextInputs(ids, lengths, letters_BTC=spelled.flip(1))).x_BTD
    assert not torch.allclose(other[0], together[0])


@torch.no_grad()
def test_both_ways_is_torchs_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    ours: Any = TextRnn(TextRnnConfig(layers=2, width=6, words=5, direction="both"), 20).double().eval()
    theirs = nn.LSTM(5, 3, 2, batch_first=True, bidirectional=True).double()
    for number, layer in enumerate(ours.states.layers):
        for end, one in (("", layer.forwards), ("_reverse", layer.backwards)):
            getattr(theirs, f"weight_ih_l{number}{end}").copy_(one.cell.from_input.weight)
            getattr(theirs, f"weight_hh_l{number}{end}").copy_(one.cell.from_state.weight)
            getattr(theirs, f"bias_ih_l{number}{end}").copy_(one.cell.from_input.bias)
            getattr(theirs, f"bias_hh_l{number}{end}").zero_()
    ids, lengths = torch.randint(20, (3, 7)), torch.tensor([7, 2, 4])
    packed = nn.utils.rnn.pack_padded_sequence(ours.table(ids), lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = ours.encode(TextInputs(ids, lengths)).x_BTD
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row, :length], expected[row, :length])
