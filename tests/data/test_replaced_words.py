"""Words of training batches that are read as another: which, how many, and the same again from the same seed."""

import pytest
import torch

from headway.batch import TextInputs
from headway.data.replaced_words import ReplacedWords, WordsLeftOut, plain_words, words_once
from headway.models.bert import Bert, BertConfig
from headway.text.tokenizer import SPECIALS, UNKNOWN, TextOptions, Tokenizer


def test_a_share_of_the_words_is_replaced_and_no_special_token():
    tokenizer = Tokenizer.train(["a b c d e f g"], TextOptions(kind="word", size=20, min_count=1))
    ids_BT = torch.randint(0, len(tokenizer), (50, 100), generator=torch.Generator().manual_seed(0))
    found_BT = ReplacedWords(plain_words(tokenizer), UNKNOWN, 0.2, seed=1).changed(TextInputs(ids_BT), 3).ids_BT
    changed_BT = found_BT != ids_BT
    plain_BT = ids_BT >= len(SPECIALS)
    assert not (changed_BT & ~plain_BT).any()
    assert (found_BT[changed_BT] == UNKNOWN).all()
    share, count = changed_BT.sum() / plain_BT.sum(), int(plain_BT.sum())
    assert abs(float(share) - 0.2) < 4 * (0.2 * 0.8 / count) ** 0.5


def test_seed_and_step_decide_which():
    ids_BT = torch.arange(4, 104).view(4, 25)
    every_V = torch.ones(200, dtype=torch.bool)
    found = {
        (seed, step): ReplacedWords(every_V, 3, 0.5, seed).changed(TextInputs(ids_BT), step).ids_BT
        for seed in (1, 2) for step in (0, 1)
    }  # fmt: skip
    assert torch.equal(found[1, 0], ReplacedWords(every_V, 3, 0.5, 1).changed(TextInputs(ids_BT), 0).ids_BT)
    assert len({tuple(ids.flatten().tolist()) for ids in found.values()}) == 4


def test_words_that_the_texts_have_once():
    which_V = words_once([[4, 5, 5, 1], [6, 7, 4, 1]], first=4)
    assert which_V.nonzero().flatten().tolist() == [6, 7]


def test_what_is_left_out_and_where_the_rest_stood():
    tokenizer = Tokenizer.train(["a b c d e f g"], TextOptions(kind="word", size=20, min_count=1))
    first, draw = len(SPECIALS), torch.Generator().manual_seed(0)
    ids_BT = torch.randint(first, len(tokenizer), (30, 102), generator=draw)
    lengths_B = torch.randint(60, 103, (30,), generator=draw)
    lengths_B[0] = 102
    for row, length in enumerate(lengths_B.tolist()):
        ids_BT[row, 0], ids_BT[row, length - 1], ids_BT[row, length:] = 1, 2, 0
    types_BT = torch.arange(102).expand(30, -1) // 51
    part = WordsLeftOut(plain_words(tokenizer), 0, 0.5, seed=1)
    found = part.changed(TextInputs(ids_BT, lengths_B, types_BT), 3)
    assert found.ids_BT.shape == (30, 52)  # the longest keeps 50 of 100, and both ends
    for row, length in enumerate(found.lengths_B.tolist()):
        places = found.positions_BT[row, :length].tolist()
        assert length == lengths_B[row] - (int(lengths_B[row]) - 2) // 2
        assert places == sorted(set(places)) and places[0] == 0 and places[-1] == lengths_B[row] - 1
        assert found.ids_BT[row, :length].tolist() == ids_BT[row, places].tolist()
        assert found.types_BT[row, :length].tolist() == types_BT[row, places].tolist()
        assert (found.ids_BT[row, length:] == 0).all()
    assert torch.equal(part.changed(TextInputs(ids_BT, lengths_B), 3).positions_BT, found.positions_BT)
    assert not torch.equal(part.changed(TextInputs(ids_BT, lengths_B), 4).positions_BT, found.positions_BT)


@pytest.mark.parametrize("share", [0.1, 0.53, 0.7, 1 - 1e-9])
def test_lengths_fit_the_width_and_no_text_is_empty(share: float) -> None:
    """Widths of a batch do not depend on what is drawn; rows without words, and rows that are empty, stay."""
    which_V = torch.arange(200) >= 4
    ids_BT = torch.arange(4, 104).repeat(3, 1)
    ids_BT[1] = 2
    part, lengths_B = WordsLeftOut(which_V, 0, share, seed=1), torch.tensor([100, 100, 1])
    found = part.changed(TextInputs(ids_BT[:1]), 0)
    assert found.lengths_B.tolist() == [found.ids_BT.shape[1]] and found.ids_BT.shape[1] == 100 - int(100 * share)
    found = part.changed(TextInputs(ids_BT, lengths_B), 0)
    assert found.lengths_B.min() == 1 and found.lengths_B.max() == found.ids_BT.shape[1] == 100
    assert found.ids_BT[1].eq(2).all()


def test_nothing_left_out_is_the_same_text():
    ids_BT = torch.arange(4, 104).view(4, 25)
    found = WordsLeftOut(torch.ones(200, dtype=torch.bool), 0, 0.0, seed=1).changed(TextInputs(ids_BT), 0)
    assert torch.equal(found.ids_BT, ids_BT) and torch.equal(found.positions_BT, torch.arange(25).expand(4, -1))


def test_an_encoder_reads_the_rest_as_in_the_whole_text():
    """A layer that sees only its own token: what it finds at a place depends on the token and the place alone."""
    torch.manual_seed(0)
    model = Bert(BertConfig(layers=1, width=8, inner=16, heads=2, max_length=30, types=0), 200).eval()
    torch.nn.init.zeros_(model.encoder.layers[0].attention.output.weight)
    ids_BT = torch.arange(4, 104).view(4, 25)
    part = WordsLeftOut(torch.ones(200, dtype=torch.bool), 0, 0.4, seed=1).changed(TextInputs(ids_BT), 0)
    whole_BTD, part_BTD = (model.encode(inputs).x_BTD for inputs in (TextInputs(ids_BT), part))
    assert part_BTD.shape[1] == 15
    torch.testing.assert_close(part_BTD, whole_BTD.gather(1, part.positions_BT[..., None].expand(-1, -1, 8)))
