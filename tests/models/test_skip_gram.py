"""Skip-gram as the paper writes it; one-hot times table is a lookup; where a model keeps its word vectors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from headway.errors import InputError
from headway.models import FAMILIES
from headway.models.configs import token_tables
from headway.models.gpt import GPTConfig
from headway.models.skip_gram import SkipGram, SkipGramConfig, kept_share, noise
from headway.models.transformer import TransformerConfig


def model(vocabulary: int = 11, width: int = 6) -> SkipGram:
    torch.manual_seed(0)
    made = SkipGram(SkipGramConfig(width=width), vocabulary).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_()
    return made


def test_the_objective_is_eq_4_number_by_number() -> None:
    skip_gram = model()
    words, around = torch.tensor([4, 5]), torch.tensor([6, 4])
    drawn = torch.tensor([[7, 8, 9], [10, 6, 6]])
    v, u = skip_gram.table.weight.tolist(), skip_gram.around_VD.tolist()

    def log_sigma(a: list[float], b: list[float], sign: int) -> float:
        return -math.log1p(math.exp(-sign * sum(x * y for x, y in zip(a, b, strict=True))))

    for i, found in enumerate(skip_gram(words, around, drawn).tolist()):
        wanted = log_sigma(u[around[i]], v[words[i]], 1)
        wanted += sum(log_sigma(u[k], v[words[i]], -1) for k in drawn[i].tolist())
        assert found == pytest.approx(wanted, abs=1e-12)


def test_one_hot_times_the_table_is_a_lookup() -> None:
    """Deck D: a one-hot vector pulls a row out of a matrix."""
    table = model().table
    ids = torch.tensor([3, 0, 10, 3])
    one_hot_NV = torch.nn.functional.one_hot(ids, 11).double()
    assert torch.equal(one_hot_NV @ table.weight, table(ids))


def test_noise_and_what_is_passed_over_by_hand() -> None:
    counts = torch.tensor([0, 0, 0, 0, 1, 16, 81])
    assert noise(counts, 0.75).tolist() == pytest.approx([0, 0, 0, 0, 1 / 36, 8 / 36, 27 / 36])
    assert noise(counts, 0.0).tolist() == pytest.approx([0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3])
    kept = kept_share(counts, 0.1).tolist()
    share = 81 / 98
    assert kept[4:6] == [1.0, 1.0] and kept[6] == pytest.approx(math.sqrt(0.1 / share) + 0.1 / share)
    assert kept_share(counts, 0.0).tolist() == [1.0] * 7


@pytest.mark.parametrize("wrong", [{"width": 0}, {"window": 0}, {"negatives": 0}, {"threshold": -1.0}, {"power": -0.5}])
def test_settings_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"model.{next(iter(wrong))}"):
        replace(SkipGramConfig(), **wrong)


def test_the_tables_of_a_model_are_those_of_its_words() -> None:
    """Learned positions are vectors too, but not of words."""
    gpt = FAMILIES["gpt"].model(GPTConfig(layers=1, width=8, heads=2, max_length=9), 20)
    assert list(token_tables(gpt)) == ["embed.table"]
    small = TransformerConfig(1, 1, width=8, inner=8, heads=2, max_length=9)
    one = FAMILIES["transformer"].model(replace(small, embeddings="shared"), 20, 20)
    two = FAMILIES["transformer"].model(replace(small, embeddings="tied"), 20, 30)
    assert [table.num_embeddings for table in token_tables(one).values()] == [20]
    assert [table.num_embeddings for table in token_tables(two).values()] == [20, 30]
    skip_gram = model()
    assert [*token_tables(skip_gram).values()] == [skip_gram.table]
