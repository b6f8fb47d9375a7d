"""A step that a CUDA graph captures cannot read a number back to the host: the forward and backward pass of every
objective, for every kind of model it trains, watched operator by operator on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headway.batch import IGNORED, TextInputs, TokenBatch
from headway.data.answer_windows import AnswerBatch
from headway.data.labelled import LabelBatch
from headway.data.masking import MaskedBatch
from headway.data.stories import StoryInputs
from headway.data.tagged import TaggedBatch
from headway.models import build, text_bag
from headway.models.bert import BertConfig
from headway.models.conv_seq2seq import ConvSeq2SeqConfig
from headway.models.gpt import GPTConfig
from headway.models.heads import Answers, Classes, Headed, LinearClasses, WordsAndPair
from headway.models.letters import LetterCnn, LetterLstm
from headway.models.memory import MemoryConfig
from headway.models.recurrent import Lstm
from headway.models.rnn_seq2seq import Dot, NoAttention, RnnSeq2SeqConfig
from headway.models.text_bag import TextBagConfig
from headway.models.text_cnn import Bigrams, Dynamic, TextCnnConfig, Windows
from headway.models.text_rnn import TextRnnConfig
from headway.models.token_heads import Crf, Spans, Tags
from headway.models.transformer import TransformerConfig
from headway.tasks.masked import MaskedLoss
from headway.tasks.objective import CrossEntropy, Labels, LinearStart, NextToken, Objective, RDrop

READS = ("_local_scalar_dense", "equal", "is_nonzero")  # not nonzero: the loss drops ignored tokens by it on a CPU only


class Watched(TorchDispatchMode):
    """The names of the operators that would wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in READS:
            self.reads.append(name)
        return func(*args, **(kwargs or {}))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(4, 30, shape)


def pairs(model: Any, objective: Any) -> tuple[Objective, Any]:
    labels = tokens(5, 6)
    labels[1, 3:] = IGNORED
    inputs = TextInputs(tokens(5, 7), torch.tensor([7, 2, 5, 7, 1]))
    return objective.build(model), TokenBatch(tokens(5, 6), labels, inputs=inputs)


def translator(objective: Any) -> tuple[Objective, Any]:
    config = TransformerConfig(1, 1, 16, 32, 2, dropout=0.1, max_length=32)
    return pairs(build("transformer", config, (30, 30)), objective)


def recurrent(**model: Any) -> tuple[Objective, Any]:
    return pairs(build("rnn-seq2seq", RnnSeq2SeqConfig(width=16, **model), (30, 30)), CrossEntropy(0.1))


def convolutional() -> tuple[Objective, Any]:
    return pairs(build("conv-seq2seq", ConvSeq2SeqConfig(2, 2, 16, 16), (30, 30)), CrossEntropy(0.1))


def composed(composition: Any) -> tuple[Objective, Any]:
    head = LinearClasses(labels=tuple("abc"), bound=3.0)
    model = Headed(build("text-cnn", TextCnnConfig(16, composition, max_length=32), (30,)), head)
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]))
    return Labels().build(model), LabelBatch(inputs, torch.randint(0, 3, (5,)))


def bag(model: Any) -> tuple[Objective, Any]:
    headed = Headed(build("text-bag", model, (30,)), LinearClasses(labels=tuple("abc"), pooling="mean"))
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]))
    return Labels().build(headed), LabelBatch(inputs, torch.randint(0, 3, (5,)), torch.rand(5))


def documents() -> tuple[Objective, Any]:
    model = build("gpt", GPTConfig(1, 16, 32, 2, max_length=32), (30,))
    segments = torch.tensor([[0, 0, 1, 1, 1, 2]]).expand(5, -1)
    return NextToken().build(model), TokenBatch(tokens(5, 6), tokens(5, 6), segments)


def encoder(head: Any, kind: Any, *shape: int) -> tuple[Objective, Any]:
    model = Headed(build("bert", BertConfig(1, 16, 32, 2, types=0, max_length=32), (30,)), head)
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]))
    return Labels().build(model), kind(inputs, torch.randint(0, 3, shape))


def lettered(letters: Any) -> tuple[Objective, Any]:
    config = TextRnnConfig(width=16, direction="both", letters=letters)
    model = build("text-rnn", config, (30,), Crf(labels=("O", "B-X", "I-X"), valid=True))
    spelled = torch.randint(0, 99, (5, 6, letters.most), dtype=torch.uint8)
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]), letters_BTC=spelled)
    return Labels().build(model), TaggedBatch(inputs, torch.randint(0, 3, (5, 6)))


def gaps() -> tuple[Objective, Any]:
    model = build("bert", BertConfig(1, 16, 32, 2, max_length=32), (30,), WordsAndPair())
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]), torch.zeros(5, 6).long())
    labels = torch.tensor([[7, 8], [9, IGNORED], [7, 7], [IGNORED, IGNORED], [5, 6]])
    return MaskedLoss().build(model), MaskedBatch(inputs, labels.clamp(0, 5), labels, torch.tensor([0, 1, 1, 0, -1]))


def answers() -> tuple[Objective, Any]:
    model = Headed(build("bert", BertConfig(1, 16, 32, 2, max_length=32), (30,)), Spans())
    inputs = TextInputs(tokens(5, 6), torch.tensor([6, 2, 5, 6, 1]))
    ends_B = torch.tensor([3, 0, 4, 5, IGNORED])
    return Labels().build(model), AnswerBatch(inputs, ends_B, ends_B, ends_B, ends_B)


def stories() -> tuple[Objective, Any]:
    model = build("memory", MemoryConfig(width=16), (30,), Answers(labels=tuple("abc")))
    times = torch.tensor([[3, 2, 1], [1, 0, 0], [2, 1, 0], [3, 2, 1], [1, 0, 0]])
    return LinearStart().build(model), LabelBatch(
        StoryInputs(tokens(5, 3, 4), times, tokens(5, 4)), torch.zeros(5).long()
    )


CASES: dict[str, Callable[[], tuple[Objective, Any]]] = {
    "cross-entropy": lambda: translator(CrossEntropy(0.1)),
    "r-drop": lambda: translator(RDrop(0.1, 3.0)),
    "recurrent": recurrent,
    "convolutional": convolutional,
    "windows": lambda: composed(Windows((2, 3), 4)),
    "dynamic pooling": lambda: composed(Dynamic((4, 2), (3, 2), 3)),
    "bigrams": lambda: composed(Bigrams()),
    "plain": lambda: recurrent(cell=Lstm(), attention=NoAttention(), start="copied", direction="backwards"),
    "before": lambda: recurrent(form="before"),
    "feeding": lambda: recurrent(form="feeding", attention=Dot()),
    "documents": documents,
    "bag of words": lambda: bag(TextBagConfig(width=16)),
    "bag of bigrams": lambda: bag(TextBagConfig(grams=text_bag.Bigrams(50), width=16)),
    "classes": lambda: encoder(Classes(labels=tuple("abc")), LabelBatch, 5),
    "tags": lambda: encoder(Tags(labels=tuple("abc")), TaggedBatch, 5, 6),
    "stories": stories,
    "letter-cnn": lambda: lettered(LetterCnn(4, 4)),
    "letter-lstm": lambda: lettered(LetterLstm(4, 4)),
    "gaps": gaps,
    "answers": answers,
    "crf": lambda: encoder(Crf(labels=tuple("abc")), TaggedBatch, 5, 6),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pass_of_an_objective_reads_nothing_back(case: str) -> None:
    torch.manual_seed(0)
    objective, batch = CASES[case]()
    with Watched() as watched:
        loss, weight = objective.train()(batch)["loss"]
        (loss * weight / batch.counts["loss"]).backward()
    assert loss.requires_grad and watched.reads == []


def test_the_watch_sees_a_number_that_is_read() -> None:
    with Watched() as watched:
        int(torch.ones(3).sum())
    assert watched.reads == ["_local_scalar_dense"]
