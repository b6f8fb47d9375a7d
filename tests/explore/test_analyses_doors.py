"""Real models of several kinds through the one door: what cannot be read is told, and where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from headway.errors import InputError, TooLong
from headway.explore.analyses import ANALYSES
from headway.explore.analyses.analysis import NoOptions, Text, Traced
from headway.generate.generator import Generator
from headway.models.gpt import GPT, GPTConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.tasks.loading import load as load_encoder
from headway.text.tokenizer import TextOptions, Tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from encoder_folders import write_encoder

TOKENIZER = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))


def generator(model: torch.nn.Module, context: int = 12) -> Generator:
    return Generator(model.eval(), TOKENIZER, context=context, device=torch.device("cpu"))


@pytest.fixture
def gpt() -> Generator:
    torch.manual_seed(0)
    return generator(GPT(GPTConfig(layers=2, width=8, heads=2, max_length=12), len(TOKENIZER)))


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_text("the cat sat\nthe dog did not\n", encoding="utf-8")
    return str(tmp_path / "a.txt")


def test_a_language_model_is_measured_and_sees_nothing_ahead(gpt: Generator, file: str):
    table = ANALYSES["heads"].run(Traced(gpt, ("weights",)), [file], NoOptions())
    assert len(table.rows) == 4 and table.column("next") == [0.0] * 4
    for name in ("rollout", "reach"):
        one = ANALYSES[name]
        assert len(one.run(Traced(gpt, one.tensors), [file], one.options()).rows) == 2


def test_a_recurrent_model_has_no_attention_but_states_to_compare(file: str):
    model = generator(Recurrent(RecurrentConfig(width=7, layers=2), len(TOKENIZER)))
    for name in ("heads", "rollout", "reach"):
        one = ANALYSES[name]
        with pytest.raises(InputError, match=r"this model \(\w+\) has no attention to look at"):
            one.run(Traced(model, one.tensors), [file], one.options())
    table = ANALYSES["smoothing"].run(Traced(model, ("hidden",)), [file], NoOptions())
    assert [row[1] for row in table.rows] == [0, 1]


def test_a_model_that_counts_has_nothing_inside(file: str):
    model = generator(NGram(NGramConfig(), len(TOKENIZER)))
    with pytest.raises(InputError, match=r"a\.txt, line 1: "):
        ANALYSES["heads"].run(Traced(model, ("weights",)), [file], NoOptions())


def test_what_is_too_long_is_an_error_with_its_line_or_is_left_out(gpt: Generator):
    texts = [Text("a.txt, line 1", "the cat"), Text("a.txt, line 2", "the cat sat on the mat " * 5)]
    with pytest.raises(InputError, match=r"a\.txt, line 2: the text has \d+ tokens, this model reads at most 12"):
        list(Traced(gpt, ("weights",)).over(texts))
    patient = Traced(gpt, ("weights",), long="skip")
    assert [text.first for text, _ in patient.over(texts)] == ["the cat"]
    assert (patient.read, patient.skipped) == (2, 1)


def test_an_encoder_says_the_same(tmp_path: Path):
    write_encoder(tmp_path / "bert", "Model")
    encoder = load_encoder(tmp_path / "bert", "cpu")
    with pytest.raises(TooLong):
        encoder.trace("the dogs ran " * 400)


def test_a_language_model_reads_no_second_file(gpt: Generator, file: str):
    with pytest.raises(InputError, match="this model reads one text and no second one"):
        ANALYSES["heads"].run(Traced(gpt, ("weights",)), [file, file], NoOptions())
