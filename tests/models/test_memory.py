"""The memory network against loops over the paper's formulas in float64: outputs, gradients, both tyings, all slots."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.models import FAMILIES, build
from headway.models.heads import Answers, Classes, Headed
from headway.models.memory import (
    Added,
    Adjacent,
    BagOfWords,
    LayerWise,
    Mapped,
    MemoryConfig,
    PositionEncoding,
    Replaced,
)
from headway.nn import tap

WIDTH, VOCABULARY = 6, 11
FORMS = {
    "layer-wise": (LayerWise(), Mapped(), Answers(labels=("a", "b", "c"))),
    "adjacent": (Adjacent(), Added(), Answers(labels=("a", "b", "c"), tied=True, words=(7, 2, 9))),
    "deck-c": (LayerWise(), Replaced(), Classes(labels=("a", "b", "c"))),
}
STORIES = [
    ([[1, 2, 3], [4, 5], [3, 1, 9, 7]], [6, 2]),
    ([[8]], [6, 6, 1]),
    ([[5, 4, 4], [10, 1]], [3]),
]


def inputs_of(stories: list[Any], slots: int = 3, words: int = 4) -> SimpleNamespace:
    rows, times, questions = [], [], []
    for story, question in stories:
        filled = [sentence + [0] * (words - len(sentence)) for sentence in story]
        rows.append(filled + [[0] * words] * (slots - len(story)))
        times.append([len(story) - at for at in range(len(story))] + [0] * (slots - len(story)))
        questions.append(question + [0] * (words - len(question)))
    return SimpleNamespace(
        words_BSW=torch.tensor(rows), times_BS=torch.tensor(times), question_BQ=torch.tensor(questions)
    )


def sentence_vector(words: list[int], table: Tensor, position: bool) -> Tensor:
    """Σⱼ lⱼ ⊙ Axⱼ, entry by entry."""
    total, longest = torch.zeros(WIDTH, dtype=torch.float64), len(words)
    for j, word in enumerate(words, 1):
        for k in range(1, WIDTH + 1):
            weight = (1 - j / longest) - (k / WIDTH) * (1 - 2 * j / longest) if position else 1.0
            unit = torch.zeros(WIDTH, dtype=torch.float64)
            unit[k - 1] = 1
            total = total + unit * weight * table[word, k - 1]
    return total


def by_hand(model: Any, config: MemoryConfig, form: str, stories: list[Any], linear: bool) -> tuple[Tensor, list[Any]]:
    """The logits, and the weights of each hop, from the formulas of Sukhbaatar et al. (2015)."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    position = isinstance(config.sentence, PositionEncoding)

    def table(at: int, kind: str) -> Tensor:
        return weights[f"encoder.embeddings.{at}.{kind}.weight"]

    logits, looked = [], []
    for story, question in stories:
        b = 0 if form == "adjacent" else 2
        u = sentence_vector(question, table(b, "table"), position)
        for hop in range(config.hops):
            a, c = (hop, hop + 1) if form == "adjacent" else (0, 1)
            m, o_of = [], []
            for at, sentence in enumerate(story):
                time = len(story) - at - 1
                for of, into in ((a, m), (c, o_of)):
                    vector = sentence_vector(sentence, table(of, "table"), position)
                    into.append(vector + table(of, "times")[time] if config.temporal else vector)
            scores = [sum(x * y for x, y in zip(u, one, strict=True)) for one in m]
            if config.empty == "seen":
                scores += [torch.zeros((), dtype=torch.float64)] * (config.memory - len(story))
            shares = scores if linear else [score.exp() / sum(other.exp() for other in scores) for score in scores]
            looked.append([float(share.detach()) for share in shares[: len(story)]])
            o = sum(share * vector for share, vector in zip(shares, o_of, strict=False))
            if form == "layer-wise":
                u = weights["encoder.hops.layers.0.query.map.weight"] @ u + o
            else:
                u = u + o if form == "adjacent" else o
        if form == "deck-c":
            layer = model.head.first.layer
            inner = torch.tanh(layer.map.weight @ u + layer.map.bias)
            logits.append(model.head.labels.weight @ inner + model.head.labels.bias)
        elif form == "adjacent":
            logits.append(table(config.hops, "table")[[7, 2, 9]] @ u)
        else:
            logits.append(weights["head.labels.weight"] @ u)
    return torch.stack(logits), looked


def made(form: str, **settings: Any) -> tuple[MemoryConfig, Headed]:
    torch.manual_seed(4)
    tying, query, head = FORMS[form]
    config = MemoryConfig(**{"hops": 3, "width": WIDTH, "memory": 5, "tying": tying, "query": query} | settings)
    model = build("memory", config, (VOCABULARY,), head).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.5)
    return config, model


CASES = [
    ("layer-wise", {}), ("adjacent", {}), ("deck-c", {}), ("layer-wise", {"hops": 1}),
    ("adjacent", {"hops": 2, "temporal": False}), ("deck-c", {"sentence": BagOfWords()}),
    ("layer-wise", {"empty": "seen"}),
]  # fmt: skip


@pytest.mark.parametrize("linear", [False, True], ids=["softmax", "linear"])
@pytest.mark.parametrize(("form", "settings"), CASES)
def test_logits_and_gradients_are_those_of_the_formulas(form: str, settings: dict[str, Any], linear: bool) -> None:
    config, model = made(form, **settings)
    model.encoder.linear.fill_(linear)
    expected, _ = by_hand(model, config, form, STORIES, linear)
    given = model(inputs_of(STORIES))
    torch.testing.assert_close(given, expected, rtol=1e-10, atol=1e-10)
    weights = list(model.parameters())
    toward = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((x * toward).sum(), weights) for x in (given, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
        assert other.abs().max() > 0


def test_padding_changes_no_answer() -> None:
    _, model = made("layer-wise")
    whole = model(inputs_of(STORIES, slots=5, words=9))
    for row, story in enumerate(STORIES):
        alone = model(inputs_of([story], slots=len(story[0])))
        torch.testing.assert_close(whole[row], alone[0], rtol=1e-12, atol=1e-12)


def test_every_hop_is_recorded_under_its_number() -> None:
    config, model = made("layer-wise")
    with tap.record(model) as recorder:
        model(inputs_of(STORIES[:1]))
    _, looked = by_hand(model, config, "layer-wise", STORIES[:1], linear=False)
    found = [recorder.tensors[f"hops.{hop}.attention.weights"][0, 0, 0].tolist() for hop in range(3)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(looked), rtol=1e-6, atol=1e-9)
    assert recorder.axes["hops.2.attention.weights"] == ("row", "head", "target", "source")


def test_tyings_share_the_tables_that_the_paper_shares() -> None:
    """Layer-wise: A, B, C, H, two T, W. Adjacent with K hops: K + 1 tables and T, W among them."""
    layer_wise, adjacent = (
        sum(weight.numel() for weight in made(form)[1].parameters()) for form in ("layer-wise", "adjacent")
    )
    assert layer_wise == 3 * VOCABULARY * WIDTH + 2 * 5 * WIDTH + WIDTH**2 + 3 * WIDTH
    assert adjacent == 4 * (VOCABULARY + 5) * WIDTH


def test_weights_start_small() -> None:
    torch.manual_seed(1)
    model = build("memory", MemoryConfig(width=200), (100,), Answers())
    for weight in model.parameters():
        assert math.isclose(float(weight.detach().std()), 0.1, rel_tol=0.15)


def test_the_family_has_an_example_and_refuses_sizes_without_meaning() -> None:
    assert FAMILIES["memory"].example(MemoryConfig(), (9,), 2, 7)[0].words_BSW.shape[:2] == (2, 7)
    for wrong in ({"hops": 0}, {"memory": 0}):
        with pytest.raises(Exception, match=r"must be at least 1, not 0"):
            MemoryConfig(**wrong)
