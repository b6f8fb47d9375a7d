"""Encoders of other people without a head, and what is said in their files alone. `test_families.py` has those with a
head; transformers' own tiny random models are the oracle of both."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import tiny  # noqa: F401  # where theirs turns queries in float64
import torch
from torch import Tensor

from foreign_world import from_hf
from headway.batch import TextInputs
from headway.errors import InputError
from headway.hub.families import FOREIGN
from headway.hub.names import to_hf
from headway.models import build
from headway.models.bert import Bert
from headway.models.heads import Classes, Headed, Vectors, Words

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

VOCABULARY = 37
CLASS = {kind: foreign.architectures[0].removesuffix("Model") for kind, foreign in FOREIGN.items()}
PLAIN = {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 31}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
MODERN = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "cls_token_id": 0, "sep_token_id": 2}
SIZES: dict[str, list[dict[str, Any]]] = {
    "bert": [
        PLAIN,
        {**PLAIN, "hidden_act": "relu", "type_vocab_size": 3, "layer_norm_eps": 1e-3, "tie_word_embeddings": False},
        {**PLAIN, "hidden_act": "gelu_new", "num_hidden_layers": 1, "num_attention_heads": 8},
    ],
    "roberta": [{**PLAIN, "type_vocab_size": 1}, {**PLAIN, "hidden_act": "relu", "pad_token_id": 4}],
    "xlm-roberta": [{**PLAIN, "type_vocab_size": 1}],
    "camembert": [{**PLAIN, "type_vocab_size": 1}],
    "electra": [{**PLAIN, "embedding_size": 10}, {**PLAIN, "embedding_size": 24}],
    "distilbert": [{"n_layers": 2, "dim": 24, "n_heads": 3, "hidden_dim": 31, **NO_DROPOUT}],
    "mpnet": [PLAIN],
    "big_bird": [PLAIN, {**PLAIN, "attention_type": "original_full", "hidden_act": "relu"}],
    "deberta-v2": [PLAIN | {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False}],
    "modernbert": [{**PLAIN, "local_attention": 6, **MODERN}],
    "albert": [
        {**PLAIN, "embedding_size": 10},
        {**PLAIN, "embedding_size": 7, "num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4},
        {**PLAIN, "embedding_size": 24, "hidden_act": "gelu", "tie_word_embeddings": False},
    ],
}


OTHERS = ("distilbert", "modernbert")  # with names of their own for dropouts, above


@dataclass(frozen=True)
class Case:
    kind: str
    head: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.head}-{self.size}"

    def config(self, **more: Any) -> Any:
        labels = {"num_labels": 2 if self.head == "ForPreTraining" else 3}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        off = {} if self.kind in OTHERS else off
        # ALBERT alone has a dropout of its own before the labels by default.
        off |= {"classifier_dropout_prob": 0.0} if self.kind == "albert" else {}
        facts = {
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 20,
            **labels,
            **off,
            **SIZES[self.kind][self.size],
        }
        return getattr(transformers, f"{CLASS[self.kind]}Config")(**(facts | more))

    def theirs(self, dtype: torch.dtype = torch.float64) -> Any:
        torch.manual_seed(3)
        model = getattr(transformers, CLASS[self.kind] + self.head)(self.config())
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        return model.to(dtype).train()

    def ours(self, theirs: Any) -> tuple[Headed, Any]:
        """headway's model with their weights, and the table that they went through."""
        foreign = FOREIGN[self.kind]
        facts = theirs.config.to_dict() | {"architectures": [CLASS[self.kind] + self.head]}
        config, head = foreign.model_in(facts)
        model = build(foreign.family, config, (VOCABULARY,), head).double().train()
        shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
        table = foreign.table(shapes, config, (VOCABULARY,), head)
        made = from_hf(table, dict(theirs.state_dict()), shapes)
        model.load_state_dict(made, strict=False)
        assert {name for name, _ in model.named_parameters()} == made.keys()
        return model.to(next(theirs.parameters()).dtype), table


CASES = [Case(kind, "Model", size) for kind in SIZES for size in range(len(SIZES[kind]))]
LENGTHS = torch.tensor([13, 4, 9, 1])


def padded(config: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, types, and which of them are no padding."""
    torch.manual_seed(5)
    own = torch.arange(13) < LENGTHS[:, None]
    ids = torch.randint(5, VOCABULARY, (4, 13)).where(own, torch.tensor(config.pad_token_id))
    return ids, torch.randint(0, max(1, getattr(config, "type_vocab_size", 0)), (4, 13)), own


def typed(config: Any, types: Tensor) -> dict[str, Tensor]:
    """What transformers is given of the types, where the model has any."""
    return {"token_type_ids": types} if getattr(config, "type_vocab_size", 0) else {}


def answers(found: Any, own: Tensor) -> list[Tensor]:
    """The tensors that a head gives, padding cut out of those that have a row for each token."""
    found = (found,) if isinstance(found, Tensor) else tuple(found)[:2]
    return [tensor[own] if tensor.dim() == 3 else tensor for tensor in found if isinstance(tensor, Tensor)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equal_to_transformers_padded_with_gradients(case: Case) -> None:
    """In train mode with dropout 0, float64; gradients of every weight, joined and shared ones too."""
    theirs = case.theirs()
    ours, table = case.ours(theirs)
    ids, types, own = padded(theirs.config)
    expected = answers(theirs(input_ids=ids, attention_mask=own.long(), **typed(theirs.config, types)).to_tuple(), own)
    found = answers(ours(TextInputs(ids, LENGTHS, types)), own)
    for ours_, theirs_ in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-10, atol=1e-10)
    sum(tensor.square().sum() for tensor in found).backward()  # type: ignore[union-attr]
    sum(tensor.square().sum() for tensor in expected).backward()  # type: ignore[union-attr]
    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    for name, gradient in to_hf(table, {n: w.grad for n, w in ours.named_parameters()}).items():  # type: ignore[misc]
        full = name if name in gradients else name.removeprefix(table.prefix)
        torch.testing.assert_close(gradient, gradients[full], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", [Case(kind, head, 0) for kind in SIZES for head in ("Model", "ForMaskedLM")], ids=str)
def test_equal_in_float32_without_types(case: Case) -> None:
    theirs = case.theirs(torch.float32)
    ours, _ = case.ours(theirs)
    ids, _, own = padded(theirs.config)
    expected = answers(theirs.eval()(input_ids=ids, attention_mask=own.long()).to_tuple(), own)
    for ours_, theirs_ in zip(answers(ours.eval()(TextInputs(ids, LENGTHS)), own), expected, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_come_back_as_they_were(case: Case) -> None:
    theirs = case.theirs()
    ours, table = case.ours(theirs)
    back = to_hf(table, dict(ours.named_parameters()))
    state = theirs.state_dict()
    for name, weight in back.items():
        assert torch.equal(weight, state[name if name in state else name.removeprefix(table.prefix)])
    again = from_hf(table, back, {name: tuple(weight.shape) for name, weight in ours.named_parameters()})
    assert all(torch.equal(again[name], weight) for name, weight in ours.named_parameters())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_config_comes_back_as_it_was(case: Case) -> None:
    foreign = FOREIGN[case.kind]
    facts = case.config().to_dict() | {"architectures": [CLASS[case.kind] + case.head]}
    config, head = foreign.model_in(facts)
    out = foreign.config_out(config, (VOCABULARY,), head)
    assert foreign.model_in(out | {"model_type": case.kind}) == (config, head)
    read = type(case.config())(**out)
    pad = {"pad_token_id"} & out.keys()  # of those whose positions begin behind it; else the tokenizer says it
    for key in ("hidden_size", "num_attention_heads", "vocab_size", *pad):
        assert getattr(read, key) == getattr(case.config(), key)


@pytest.mark.parametrize(
    ("kind", "key", "value", "said"),
    [
        ("bert", "position_embedding_type", "relative_key", "position_embedding_type is 'relative_key'"),
        ("bert", "is_decoder", True, "is_decoder is True"),
        ("bert", "hidden_act", "swish", "no hidden_act 'swish'"),
        ("albert", "num_hidden_layers", 0, "num_hidden_layers is 0, it must be at least 1"),
        ("roberta", "twist", 3, "'twist' (3)"),
    ],
)
def test_a_config_that_changes_the_mathematics_is_refused(kind: str, key: str, value: Any, said: str) -> None:
    facts = Case(kind, "Model", 0).config().to_dict() | {key: value}
    with pytest.raises(InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        FOREIGN[kind].model_in(facts)


def test_the_other_tasks_of_a_pretrained_checkpoint_are_left_aside() -> None:
    """As bert-base is stored: architectures says masked words, the file has the heads for pairs too, with old names."""
    whole = Case("bert", "ForPreTraining", 0).theirs()
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in whole.state_dict().items()
    }
    state["bert.embeddings.position_ids"] = torch.arange(20)[None]
    config, head = FOREIGN["bert"].model_in(whole.config.to_dict() | {"architectures": ["BertForMaskedLM"]})
    model = Headed(Bert(config, VOCABULARY), head).double()
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    made = from_hf(FOREIGN["bert"].table(shapes, config, (VOCABULARY,), head), state, shapes)
    model.load_state_dict(made, strict=False)
    ids, types, own = padded(whole.config)
    expected = whole(input_ids=ids, attention_mask=own.long(), token_type_ids=types).prediction_logits
    torch.testing.assert_close(
        model.eval()(TextInputs(ids, LENGTHS, types))[own], expected[own], rtol=1e-10, atol=1e-10
    )


def test_labels_are_read_with_what_they_answer() -> None:
    facts = Case("bert", "ForSequenceClassification", 0).config(
        id2label={0: "bad", 1: "fair", 2: "good"}, problem_type="multi_label_classification", classifier_dropout=0.3
    )
    _, head = FOREIGN["bert"].model_in(facts.to_dict() | {"architectures": ["BertForSequenceClassification"]})
    assert head == Classes(("bad", "fair", "good"), "several", 0.3)


@pytest.mark.parametrize("said", [None, "single_label_classification"])
def test_an_only_label_is_true_or_not(said: str | None) -> None:
    """A softmax over one label would always say 1."""
    facts = Case("bert", "ForSequenceClassification", 0).config().to_dict()
    facts |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "spam"}, "problem_type": said}
    _, head = FOREIGN["bert"].model_in(facts)
    assert head.answer == "several"


def test_what_a_family_cannot_hold_is_named() -> None:
    bert, head = FOREIGN["bert"].model_in(Case("bert", "ForMaskedLM", 0).config().to_dict())
    with pytest.raises(InputError, match=r"albert cannot hold this model: model\.groups"):
        FOREIGN["albert"].config_out(bert, (VOCABULARY,), head)
    with pytest.raises(InputError, match=r"bert cannot hold this model: head\.activation"):
        FOREIGN["bert"].config_out(bert, (VOCABULARY,), Words(activation="relu"))
    assert isinstance(head, Vectors)  # without architectures a config.json promises no head
