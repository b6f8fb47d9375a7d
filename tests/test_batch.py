"""Batches: every field is moved, cut, padded and joined, nested ones too, and counts follow."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, TokenBatch, column
from headway.train.step import TrainStep


@dataclass(frozen=True)
class Scored(Batch):
    """Two terms with counts of their own, a nested batch, a tensor of the whole batch and a plain value."""

    inputs: TextInputs
    values_B: Tensor = column(pad=IGNORED)
    tags_BT: Tensor = column(pad=IGNORED)
    fresh: Tensor = column()
    kind: str = "a"

    def counted(self) -> dict[str, float]:
        return {"loss": int((self.values_B != IGNORED).sum()), "tags": int((self.tags_BT != IGNORED).sum())}


def scored(rows: int = 5) -> Scored:
    ids = torch.arange(rows * 4).reshape(rows, 4) + 4
    tags = torch.where(ids % 3 == 0, ids, IGNORED)
    lengths = torch.arange(rows) % 4 + 1
    return Scored(TextInputs(ids, lengths), torch.arange(rows), tags, torch.tensor(True), examples=tuple(range(rows)))


def test_parts_of_a_batch_are_its_rows_each_once_and_their_counts_add_up() -> None:
    batch = scored()
    for parts in (1, 2, 3, 9):
        found = batch.split(parts)
        assert torch.equal(torch.cat([part.inputs.ids_BT for part in found]), batch.inputs.ids_BT)
        assert torch.equal(torch.cat([part.tags_BT for part in found]), batch.tags_BT)
        assert [i for part in found for i in part.examples] == list(batch.examples)
        for name, count in batch.counts.items():
            assert sum(part.counts[name] for part in found) == count
        assert all(bool(part.fresh) and part.kind == "a" for part in found)


def test_empty_rows_count_nowhere_and_say_so_in_their_own_values() -> None:
    batch = scored()
    padded = batch.pad(8)
    assert len(padded) == 8 and padded.counts == batch.counts and padded.tokens == batch.tokens
    assert padded.rows(5, 8).counts == {"loss": 0, "tags": 0}
    assert padded.inputs.lengths_B[5:].tolist() == [1, 1, 1] and (padded.tags_BT[5:] == IGNORED).all()
    assert padded.examples == batch.examples and len(batch.pad(2)) == 5
    empty = batch.rows(0, 0).pad(1)
    assert len(empty) == 1 and empty.counts == {"loss": 0, "tags": 0}


def test_padding_gives_lengths_in_any_case_so_that_shapes_are_few() -> None:
    inputs = TextInputs(torch.ones(3, 4, dtype=torch.long))
    assert inputs.pad(3).lengths_B.tolist() == [4, 4, 4] and inputs.pad(4).lengths_B.tolist() == [4, 4, 4, 1]


def test_joined_batches_have_all_rows_and_shorter_ones_are_padded() -> None:
    short = TokenBatch(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long), examples=(7, 8))
    long = TokenBatch(torch.ones(1, 5, dtype=torch.long), torch.ones(1, 5, dtype=torch.long), examples=(9,))
    joined = TokenBatch.join([short, long])
    assert joined.examples == (7, 8, 9) and joined.counts["loss"] == 11
    assert joined.labels_BT[:2, 3:].eq(IGNORED).all() and joined.segments_BT is None


def test_every_tensor_is_moved_the_nested_ones_and_the_counts_too() -> None:
    moved = scored().map(lambda tensor: tensor.to("meta"))
    assert all(tensor.device.type == "meta" for _, tensor in moved.tensors())
    names = [name for name, _ in moved.tensors()]
    assert names == ["inputs.ids_BT", "inputs.lengths_B", "values_B", "tags_BT", "fresh", "counts.loss", "counts.tags"]
    assert moved.tokens == 5 and moved.kind == "a"


@pytest.mark.parametrize(
    "other",
    [
        Scored(TextInputs(torch.ones(5, 4)), torch.arange(5), torch.ones(5, 4), torch.tensor(True)),
        Scored(scored().inputs, torch.arange(5).int(), scored().tags_BT, torch.tensor(True)),
        Scored(scored().inputs, torch.arange(5), scored().tags_BT, torch.tensor(True), kind="b"),
        scored(6),
    ],
    ids=["names", "dtypes", "plain values", "shapes"],
)
def test_batches_of_one_captured_step_agree_in_names_dtypes_shapes_and_plain_values(other: Batch) -> None:
    assert scored().shape() == scored().map(torch.clone).shape() != other.shape()


class TwoTerms(torch.nn.Module):
    """Σ w·value and ½ Σ v·tag over what is labelled."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))

    def forward(self, batch: Scored) -> dict[str, tuple[Tensor, float]]:
        values = (self.w.sum() * batch.values_B * (batch.values_B != IGNORED)).sum()
        tags = (self.v.sum() * batch.tags_BT * (batch.tags_BT != IGNORED)).sum()
        return {"loss": (values, 1.0), "tags": (tags, 0.5)}


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_every_term_is_divided_by_its_own_count_of_the_whole_batch(parts: int) -> None:
    from headway.train.optimiser import Adam, Masters

    objective, batch = TwoTerms(), scored()
    sums = TrainStep(objective, Masters(objective.named_parameters(), Adam()))(batch, parts)
    values, tags = batch.values_B.float().mean(), batch.tags_BT[batch.tags_BT != IGNORED].float().mean()
    torch.testing.assert_close(objective.w.grad, values.expand(2))
    torch.testing.assert_close(objective.v.grad, 0.5 * tags.expand(3))
    assert sums["count.loss"] == 5 and sums["count.tags"] == int((batch.tags_BT != IGNORED).sum())


@pytest.mark.gpu
def test_a_captured_step_reads_the_counts_of_the_batch_that_it_is_given() -> None:
    """The second term's count varies from batch to batch; captured and plain steps agree in every weight."""
    from headway.train.optimiser import Masters, Sgd
    from headway.train.step import GraphStep

    found = []
    for kind in (TrainStep, GraphStep):
        torch.manual_seed(0)
        objective = TwoTerms().cuda()
        masters = Masters(objective.named_parameters(), Sgd())
        step, sums = kind(objective, masters), {}
        for number in range(8):
            batch = scored()
            tags = torch.where(torch.arange(20).reshape(5, 4) <= 2 * number, batch.tags_BT.abs(), IGNORED)
            masters.set_rate(0.01)
            sums = step(Scored(batch.inputs, batch.values_B, tags, batch.fresh), 1)
            assert float(sums["count.tags"]) == int((tags != IGNORED).sum()) == 2 * number + 1
        found.append([weight.detach().cpu() for weight in objective.parameters()] + [sums["tags"].cpu()])
    torch.testing.assert_close(found[0], found[1])
