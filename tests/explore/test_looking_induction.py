"""Previous-token and induction heads: patterns written by hand, and a model beside its own weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headway.errors import InputError
from headway.explore.analyses.analysis import Traced
from headway.explore.analyses.induction import INDUCTION, Options, random_rounds, scores
from headway.generate.generator import Generator
from headway.models.gpt import GPT, GPTConfig
from headway.models.recurrent import Gru, Recurrent, RecurrentConfig
from headway.text.tokenizer import TextOptions, Tokenizer

TOKENIZER = Tokenizer.train(["the cat sat on the mat"] * 3, TextOptions(size=290, exact=True))


def generator(model, context: int = 64) -> Generator:
    torch.manual_seed(5)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return Generator(model.double().eval(), TOKENIZER, context=context, device=torch.device("cpu"))


def gpt(**more) -> GPT:
    return GPT(GPTConfig(**{"layers": 2, "width": 12, "heads": 3, "max_length": 64} | more), len(TOKENIZER))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_hand_made_patterns_have_the_scores_that_they_were_made_for(before):
    """Tokens a b c a b c behind an opening: a, the second time, must look at b, the first time."""
    length = 3
    n = before + 2 * length
    previous, induced, uniform = np.zeros((n, n)), np.zeros((n, n)), np.tri(n) / np.tri(n).sum(1, keepdims=True)
    words = ["<s>"] * before + list("abcabc")
    for t in range(1, n):
        previous[t, t - 1] = 1
    for t in range(before + length, n):
        first = words.index(words[t])
        induced[t, first + 1] = 1
    by_previous, by_induction = scores(np.array([previous, induced, uniform]), before, length)
    assert by_previous[0] == 1 and by_induction[1] == 1 and by_induction[0] == pytest.approx(0)
    assert by_previous[1] == pytest.approx(0)
    assert by_induction[2] == pytest.approx(np.mean([1 / (t + 1) for t in range(before + length, n)]))


def test_random_rounds_are_the_same_tokens_twice_without_specials():
    mine = generator(gpt())
    ids = random_rounds(mine, 9, 4, seed=1)
    before = len(mine.ids(""))
    assert ids.shape == (4, before + 18)
    assert torch.equal(ids[:, before : before + 9], ids[:, before + 9 :])
    special = {*TOKENIZER.stops, TOKENIZER.start, TOKENIZER.end, TOKENIZER.pad, TOKENIZER.unknown}
    assert not special & set(ids[:, before:].flatten().tolist())
    assert torch.equal(ids, random_rounds(mine, 9, 4, seed=1)) and not torch.equal(ids, random_rounds(mine, 9, 4, 2))


def test_a_models_scores_are_those_of_its_own_weights(tmp_path):
    mine = generator(gpt())
    table = INDUCTION.run(Traced(mine, INDUCTION.tensors), [], Options(length=6, rows=2))
    ids, before = random_rounds(mine, 6, 2, 0), len(mine.ids(""))
    part = mine.model.decoder.layers[0].attention
    with torch.no_grad():
        x = mine.model.decoder.layers[0].around_attention.before(
            mine.model.embed(ids, mine.model.start(None, 2, ids.device)).x_RTD
        )
        q, k, _ = part.qkv(x).split(12, -1)
        sums = np.zeros((3, 2))
        later = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        for row in range(2):
            for head in range(3):
                own = slice(4 * head, 4 * head + 4)
                score = (q[row, :, own] @ k[row, :, own].T / 2).masked_fill(later, -torch.inf)
                weights = score.softmax(-1).numpy()
                sums[head, 0] += np.mean([weights[t, t - 1] for t in range(before + 1, len(weights))]) / 2
                sums[head, 1] += np.mean([weights[t, t - 5] for t in range(before + 6, len(weights))]) / 2
    np.testing.assert_allclose([row[3:] for row in table.rows if row[1] == 0], sums, atol=1e-6)
    with torch.no_grad():
        logp = mine.model.score(ids)
    assert table.more["loss"][0] == pytest.approx(-float(logp[:, before + 1 : before + 6].mean()), abs=1e-6)
    assert table.more["loss"][1] == pytest.approx(-float(logp[:, before + 7 :].mean()), abs=1e-6)
    assert INDUCTION.draw(table, tmp_path / "induction.png").stat().st_size > 5000


def test_rounds_are_as_long_as_the_model_reads_and_other_models_are_refused(tmp_path):
    mine = generator(gpt(max_length=12), context=12)
    table = INDUCTION.run(Traced(mine, INDUCTION.tensors), [], Options())
    assert f"of {(12 - len(mine.ids(''))) // 2} random tokens" in table.notes[0]
    with pytest.raises(InputError, match="makes up its own texts"):
        INDUCTION.run(Traced(mine, INDUCTION.tensors), ["a.txt"], Options())
    with pytest.raises(InputError, match="has no attention to look at"):
        recurrent = generator(Recurrent(RecurrentConfig(cell=Gru(), layers=1, width=8), len(TOKENIZER)))
        INDUCTION.run(Traced(recurrent, INDUCTION.tensors), [], Options())
    with pytest.raises(InputError, match="induction is for language models"):
        INDUCTION.run(Traced(SimpleNamespace(takes="pair"), INDUCTION.tensors), [], Options())
    with pytest.raises(InputError, match="length 1, rows 8"):
        Options(length=1)
