"""What a model costs: torch's own counter of operations is the oracle, autograd's of what training keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.batch import TextInputs
from headway.errors import InputError
from headway.evaluate.cost import Sketch, state_bytes
from headway.evaluate.flops import FORMULAS, Count, count
from headway.models import FAMILIES, bert, build, gpt, neural_ngram, parts, recurrent, rung, transformer
from headway.models.heads import Vectors
from headway.models.ngram import NGram, NGramConfig
from headway.models.parts import Blocks
from headway.nn.attention import Additive, Multiplicative, SelfAttention
from headway.nn.view import SEE_ALL

SMALL_GPT = gpt.GPTConfig(2, 24, heads=4, max_length=32)
SMALL_TRANSLATOR = transformer.TransformerConfig(2, 3, 24, 40, 4)
SMALL_LSTM = recurrent.RecurrentConfig(recurrent.Lstm(), 2, 16, embedding=8)
CASES: list[tuple[str, Any]] = [
    ("gpt", SMALL_GPT),
    ("gpt", dataclasses.replace(SMALL_GPT, shared_heads=2, bias=False, tied=False, position=parts.Rotary())),
    ("gpt", dataclasses.replace(SMALL_GPT, feed_forward=parts.Gated(), position=parts.RelativeBias())),
    ("transformer", SMALL_TRANSLATOR),
    ("transformer", dataclasses.replace(SMALL_TRANSLATOR, norm=parts.PreNorm(), position=parts.LinearBias())),
    ("recurrent", SMALL_LSTM),
    ("recurrent", dataclasses.replace(SMALL_LSTM, cell=recurrent.Gru(), tied=True)),
    ("recurrent", dataclasses.replace(SMALL_LSTM, cell=recurrent.Rnn(), first="learned")),
    ("neural-ngram", neural_ngram.NeuralNGramConfig(order=4, width=6, hidden=10)),
    ("neural-ngram", neural_ngram.NeuralNGramConfig(order=4, width=6, hidden=6, direct=False, tied=True)),
    *(("rung", dataclasses.replace(config, width=16)) for config in rung.RUNGS.values()),
]


def sketch(family: str, config: Any) -> Sketch:
    return Sketch(family, config, (50,) * len(FAMILIES[family].takes))


def torchs_count(model: nn.Module, *inputs: Any, backward: bool = False) -> int:
    """On the `meta` device, where attention and recurrences are made of products that the counter knows."""
    with FlopCounterMode(display=False) as counter:
        result = model(*inputs)
        if backward:
            (result if isinstance(result, Tensor) else result[0]).sum().backward()
    return int(counter.get_total_flops())


def shallow(config: Any) -> Any:
    """With two layers where it has more: the others are the same."""
    known = {field.name for field in dataclasses.fields(config)}
    deep = {"layers": 2, "encoder_layers": 2, "decoder_layers": 2}
    return dataclasses.replace(config, **{name: layers for name, layers in deep.items() if name in known})


def flops(counted: Count) -> int:
    return counted.total("flops")


@pytest.mark.parametrize(("family", "config"), CASES)
def test_operations_are_those_that_torch_counts(family: str, config: Any) -> None:
    lengths = (7, 5) if family == "transformer" else (7,)
    of = sketch(family, config)
    cost = of.cost(lengths[-1], *lengths[:-1], batch=3)
    with torch.device("meta"):
        model, inputs = of.build(), of.inputs(3, *lengths)
        assert cost.flops == torchs_count(model, *inputs) > 0
    assert cost.unknown == ()
    assert cost.products == sum(part.products for part in cost.parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_is_forgotten(family: str) -> None:
    """A new one that fails here uses an operator that needs a formula in `evaluate/flops.py`."""
    of = sketch(family, shallow(FAMILIES[family].config()))
    cost = of.cost(6, batch=2)
    assert cost.unknown == ()
    if family != "ngram":  # whose tables decide what is looked up: below, with real ones
        lengths = (6,) * len(FAMILIES[family].takes)
        with torch.device("meta"):
            assert cost.flops == torchs_count(of.build(), *of.inputs(2, *lengths))


def test_a_markov_chain_multiplies_nothing_and_sees_its_order() -> None:
    model = NGram.count(NGramConfig(order=3), 9, np.array([2, 3, 4, 5, 3, 4, 6, 2]))
    assert torchs_count(model, torch.tensor([[3, 4, 5]])) == 0
    costs = [Sketch("ngram", model.config, (9,)).cost(length) for length in (2, 3)]
    assert [cost.products for cost in costs] == [0, 0]
    assert [cost.path for cost in costs] == [1, None]
    size = Sketch("ngram", model.config, (9,)).size()
    assert size.weights == sum(weight.numel() * weight.element_size() for weight in model.parameters())


@pytest.mark.parametrize(("family", "config"), [CASES[0], CASES[3], CASES[7], CASES[8]])
def test_a_training_step_is_three_forward_passes(family: str, config: Any) -> None:
    """With a learned first state: one that is zero needs no gradient, which spares a recurrence a product a layer."""
    of = sketch(family, config)
    lengths = (6,) * len(FAMILIES[family].takes)
    with torch.device("meta"):
        counted = torchs_count(of.build(), *of.inputs(2, *lengths), backward=True)
    assert of.cost(6, batch=2).training_flops == counted


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("how", [{}, {"bidirectional": True, "num_layers": 3}, {"batch_first": True, "bias": False}])
def test_torchs_recurrent_modules(kind: Any, how: dict[str, Any]) -> None:
    with torch.device("meta"):
        module, x = kind(5, 7, **how), torch.zeros(4, 6, 5)
        counted, real = count(module, x), module(x)
        short = count(nn.Sequential(module), x)
    assert counted.total("flops") == torchs_count(module, x) and counted.unknown == ()
    assert counted.total("steps") == (6 if how.get("batch_first") else 4) * how.get("num_layers", 1)
    assert short.total("flops") == counted.total("flops")
    assert "forward" not in module.__dict__ and real[0].shape == module(x)[0].shape  # left as it was


def test_an_lstm_that_hands_on_less_than_it_holds() -> None:
    with torch.device("meta"):
        module, x = nn.LSTM(5, 8, num_layers=2, proj_size=3), torch.zeros(4, 6, 5)
        assert flops(count(module, x)) == torchs_count(module, x)


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells(kind: Any) -> None:
    with torch.device("meta"):
        module, x = kind(5, 7), torch.zeros(4, 5)
        assert flops(count(module, x)) == torchs_count(module, x)


@pytest.mark.parametrize("how", [{}, {"groups": 2, "padding": 1}, {"stride": 2, "dilation": 2, "padding": 3}])
def test_convolutions(how: dict[str, Any]) -> None:
    with torch.device("meta"):
        module, x = nn.Conv1d(6, 8, 3, **how), torch.zeros(4, 6, 20)
        assert flops(count(module, x)) == torchs_count(module, x)


def test_scores_of_recurrent_attention() -> None:
    with torch.device("meta"):
        q_BHTK, k_BHSK = torch.zeros(2, 1, 3, 6), torch.zeros(2, 1, 5, 6)
        for score in (Multiplicative(6, 6), Additive(6, 6, 4)):
            counted = count(score, q_BHTK, k_BHSK)
            assert counted.total("flops") == torchs_count(score, q_BHTK, k_BHSK) and counted.unknown == ()


class Strange(nn.Module):
    """Multiplies with a weight of a part that it does not call, with one of its own, and between its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.weight = nn.Linear(4, 4), nn.Parameter(torch.zeros(1, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        mapped = (x @ self.inner.weight)[None] @ self.weight
        return (mapped @ mapped.mT)[0]


def test_products_that_no_part_owns_are_counted_where_they_happen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Strange())
    found = count(model, torch.zeros(2, 4))
    by_path = {call.path: call for call in found.calls}
    assert found.total("flops") == torchs_count(model, torch.zeros(2, 4))
    assert (by_path["0"].flops, by_path["1"].flops) == (2 * 2 * 16, 2 * (2 * 2 * 16 + 2 * 2 * 4))
    assert by_path["1"].pairs == 2 * 2 * 2 * 4  # a product with a weight is not between positions, whatever its shape


@torch.library.custom_op("headway_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return 2 * x


class Opaque(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return twice(x)


def test_an_operator_without_a_formula_is_named_until_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(Opaque(), torch.zeros(3)).unknown == ("headway_tests.twice",)
    monkeypatch.setitem(FORMULAS, "headway_tests.twice", lambda x, **_: 7 * x[0])
    found = count(Opaque(), torch.zeros(3))
    assert (found.unknown, found.total("flops")) == ((), 21)


def test_a_part_in_two_places_is_counted_at_each_call_once() -> None:
    shared = nn.Linear(4, 4)
    assert flops(count(nn.Sequential(shared, nn.Sequential(shared)), torch.zeros(1, 4))) == 2 * 2 * 16


def test_paths() -> None:
    assert sketch("gpt", SMALL_GPT).cost(9).path == 1
    assert sketch("transformer", SMALL_TRANSLATOR).cost(9, 30).path == 1
    assert sketch("recurrent", SMALL_LSTM).cost(9).path == 8
    assert sketch("gpt", SMALL_GPT).cost(1).path == 0
    of = sketch("neural-ngram", neural_ngram.NeuralNGramConfig(order=4, width=6, hidden=10))
    assert [of.cost(length).path for length in (1, 3, 4)] == [0, 1, None]


@pytest.mark.parametrize(("family", "config"), [CASES[0], CASES[5], CASES[8], ("rung", rung.RUNGS["bow"])])
def test_a_path_is_none_just_where_no_gradient_leads_from_the_first_token_to_the_last(family: str, config: Any) -> None:
    torch.manual_seed(0)
    of = sketch(family, config)
    model: Any = build(of.family, of.config, of.vocabularies).double().eval()
    for length in (2, 3, 4, 7):
        table = next(part for part in model.modules() if isinstance(part, nn.Embedding))
        hidden_BTD, _ = model.read(torch.arange(3, 3 + length)[None])
        somehow = hidden_BTD[0, -1] @ torch.randn(hidden_BTD.shape[-1], dtype=torch.float64)
        (gradient_VD,) = torch.autograd.grad(somehow, table.weight)
        assert bool(gradient_VD[3].any()) == (of.cost(length).path is not None)


def test_the_state_is_as_large_as_a_real_one() -> None:
    for family, config in (CASES[0], CASES[1], CASES[3], CASES[5], CASES[8]):
        of = sketch(family, config)
        model: Any = build(of.family, of.config, of.vocabularies)
        ids = torch.full((2, 6), 3)
        state = model.start(TextInputs(ids) if family == "transformer" else None, 2, ids.device)
        _, state = model.read(ids, state)
        cost = of.cost(6, batch=2)
        assert cost.state == state_bytes(state)
        if family == "gpt":
            kept = config.shared_heads or config.heads
            assert cost.state_per_token == 2 * config.layers * 2 * kept * (config.width // config.heads) * 4
        if family == "recurrent":
            assert (cost.state_per_token, cost.state) == (0, 2 * 2 * 2 * 16 * 4)


@pytest.mark.parametrize(("family", "config"), [CASES[0], CASES[3], CASES[7], CASES[10]])
def test_activations_are_what_autograd_keeps_of_a_real_pass(family: str, config: Any) -> None:
    of = sketch(family, config)
    lengths = (11,) * len(FAMILIES[family].takes)
    model = build(of.family, of.config, of.vocabularies).train()
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = model(*of.inputs(3, *lengths))
    for tensor in (*model.parameters(), *model.buffers()):
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    assert result is not None
    assert of.cost(11, batch=3).activations == sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_bfloat16_needs_half_and_nothing_is_left_changed() -> None:
    wide, narrow = (Sketch("gpt", SMALL_GPT, (50,), dtype) for dtype in (torch.float32, torch.bfloat16))
    assert narrow.size().weights * 2 == wide.size().weights
    assert torch.get_default_dtype() == torch.float32
    assert narrow.cost(8).flops == wide.cost(8).flops
    assert narrow.cost(8).activations < wide.cost(8).activations


@pytest.mark.long
def test_the_largest_gpt_needs_no_memory_to_be_counted() -> None:
    of = Sketch("gpt", gpt.GPTConfig(96, 12_288, heads=96, max_length=2048), (50_257,))
    with torch.device("meta"):
        model = of.build()
        assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(175e9, rel=0.003)
        assert flops(count(model, *of.inputs(1, 128))) / 128 == pytest.approx(2 * 175e9, rel=0.01)


def test_counting_leaves_nothing_behind_for_real_passes() -> None:
    """A mask is kept between calls: one without memory must not come to a model that has some, nor the other way."""
    of = sketch("gpt", dataclasses.replace(SMALL_GPT, position=parts.RelativeBias()))
    model, ids = build(of.family, of.config, of.vocabularies).eval(), torch.arange(6)[None]
    before = model(ids)[0]
    of.cost(6)
    assert torch.equal(model(ids)[0], before)


def test_a_text_in_blocks_is_counted_and_leaves_nothing_behind() -> None:
    config = bert.BertConfig(layers=1, width=16, inner=32, heads=2, max_length=96, pattern=Blocks(8, 1))
    of = sketch("bert", config)
    model = build(of.family, of.config, of.vocabularies).eval()
    given = TextInputs(torch.arange(96)[None] % 50)
    before = model(given).x_BTD
    cost = of.cost(96)
    assert torch.equal(model(given).x_BTD, before)
    assert cost.activations > 0 and cost.flops > 0


@pytest.mark.parametrize(("size", "published"), [("base", 109_482_240), ("large", 335_141_888)])
def test_bert_from_its_shapes_alone(size: str, published: int) -> None:
    transformers = pytest.importorskip("transformers")
    shape = bert.SIZES[size]
    config = transformers.BertConfig(
        hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        intermediate_size=shape.inner, attn_implementation="eager",
    )  # fmt: skip
    of = Sketch("bert", shape, (30_522,), head=Vectors(first=True))
    with torch.device("meta"):
        theirs = transformers.BertModel(config).eval()
        counted = torchs_count(theirs, torch.zeros(2, 20, dtype=torch.long))
        assert flops(count(of.build(), *of.inputs(2, 20))) == counted
    assert of.size().parameters == published == sum(weight.numel() for weight in theirs.parameters())


@pytest.mark.parametrize(("length", "batch"), [(0, 1), (-3, 1), (4, 0)])
def test_no_length_and_no_batch_below_one(length: int, batch: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        sketch("gpt", SMALL_GPT).cost(length, batch=batch)


def test_a_length_beyond_the_models_positions_is_told() -> None:
    with pytest.raises(InputError, match="length 33 is too long for this model"):
        sketch("gpt", SMALL_GPT).cost(33)
    with pytest.raises(InputError, match="has no source"):
        sketch("gpt", SMALL_GPT).cost(3, 4)


def test_attention_without_a_model() -> None:
    with torch.device("meta"):
        module, x_BTD = SelfAttention(8, 2), torch.zeros(3, 5, 8)
        assert flops(count(module, x_BTD, SEE_ALL)) == torchs_count(module, x_BTD, SEE_ALL)


def test_what_a_recurrence_keeps_grows_evenly_with_its_steps() -> None:
    """Long ones are not run: the same must come out as if they were."""
    of = sketch("recurrent", dataclasses.replace(SMALL_LSTM, cell=recurrent.Gru()))
    four, five, six, nine = (of.activations(2, length) for length in (4, 5, 6, 9))
    assert six - five == five - four and nine - six == 3 * (six - five)
