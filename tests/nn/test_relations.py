"""Relations that a batch supplies: as biases of the scores and as masks."""

import pytest
import torch

from headway.nn.attention import SelfAttention
from headway.nn.mask import Causal, Padding, Related
from headway.nn.position import FeatureBias, RelationBias, Scene

CPU = torch.device("cpu")
DISTANCES = torch.tensor([[[0, 1, 2, 9], [1, 0, 1, 9], [2, 1, 0, 9], [9, 9, 9, 0]]]).expand(2, -1, -1)


def scene(**more):
    torch.manual_seed(0)
    return Scene(4, 4, CPU, relations={"distance": DISTANCES, "edge": torch.randn(2, 4, 4, 3)}, **more)


def test_a_relation_becomes_a_number_for_each_head_and_value():
    part, q = RelationBias(2, "distance", 4), torch.zeros(2, 2, 4, 8)
    bias = part.bias(q, scene())
    for b in range(2):
        for h in range(2):
            for t in range(4):
                for s in range(4):
                    assert bias[b, h, t, s] == part.table.weight[min(int(DISTANCES[b, t, s]), 3), h]


def test_features_of_an_edge_become_a_number_for_each_head():
    part, facts = FeatureBias(2, "edge", 3), scene()
    bias = part.bias(torch.zeros(2, 2, 4, 8), facts)
    wanted = torch.einsum("btsf,hf->bhts", facts.relations["edge"], part.map.weight)
    torch.testing.assert_close(bias, wanted)


@pytest.mark.parametrize("shared", [1, 2])
def test_attention_among_neighbours_does_not_see_the_others(shared):
    torch.manual_seed(0)
    part, facts = SelfAttention(8, 2, shared_heads=shared), scene(key_lengths_B=torch.tensor([4, 3]))
    view = (Related("distance", most=1) & Padding()).view(facts).placed(RelationBias(2, "distance", 10))
    x = torch.randn(2, 4, 8)
    changed = x.clone()
    changed[:, 2:] += 1.0
    before, after = part(x, view), part(changed, view)
    torch.testing.assert_close(before[:, 0], after[:, 0])  # a neighbour of the second node alone
    assert not torch.allclose(before[:, 1], after[:, 1])
    before.sum().backward()
    assert view.position.table.weight.grad.abs().sum() > 0


def test_a_relation_of_later_queries_is_that_of_their_rows():
    rule = Related("distance", most=9, least=1) & Causal()
    late = Scene(1, 4, CPU, torch.tensor([1, 2]), relations={"distance": DISTANCES[:, 1:2]})
    assert rule.matrix(late)[:, 0, 0].int().tolist() == [[1, 0, 0, 0], [1, 0, 1, 0]]


def test_a_relation_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="no relation 'colour'; it has: distance, edge"):
        RelationBias(2, "colour", 3).bias(torch.zeros(2, 2, 4, 8), scene())
