"""Words of training batches that are read as another: which, how many, and the same again from the same seed."""

import torch

from headway.batch import TextInputs
from headway.data.replaced_words import ReplacedWords, plain_words, words_once
from headway.text.tokenizer import SPECIALS, UNKNOWN, TextOptions, Tokenizer


def test_a_share_of_the_words_is_replaced_and_no_special_token():
    tokenizer = Tokenizer.train(["a b c d e f g"], TextOptions(kind="word", size=20, min_count=1))
    ids_BT = torch.randint(0, len(tokenizer), (50, 100), generator=torch.Generator().manual_seed(0))
    found_BT = ReplacedWords(plain_words(tokenizer), UNKNOWN, 0.2, seed=1).replaced(TextInputs(ids_BT), 3).ids_BT
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
        (seed, step): ReplacedWords(every_V, 3, 0.5, seed).replaced(TextInputs(ids_BT), step).ids_BT
        for seed in (1, 2) for step in (0, 1)
    }  # fmt: skip
    assert torch.equal(found[1, 0], ReplacedWords(every_V, 3, 0.5, 1).replaced(TextInputs(ids_BT), 0).ids_BT)
    assert len({tuple(ids.flatten().tolist()) for ids in found.values()}) == 4


def test_words_that_the_texts_have_once():
    which_V = words_once([[4, 5, 5, 1], [6, 7, 4, 1]], first=4)
    assert which_V.nonzero().flatten().tolist() == [6, 7]
