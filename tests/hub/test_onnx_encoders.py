"""ONNX Runtime with the graphs of encoders: equal to headway for every head, padded or not, at sizes that were not
exported. Long, as `test_onnx.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from test_encoder_export import write_words
from test_onnx import ran, session
from tiny import TINY, their_mask

from encoder_folders import declare_pooling, write_encoder
from headway.batch import TextInputs
from headway.errors import InputError
from headway.folder import read_model, text_card, weights_of, with_tokenizers, write_model
from headway.hub.onnx_export import export_onnx
from headway.models import build
from headway.models.bert import BertConfig
from headway.models.token_heads import Crf
from headway.tasks.loading import load
from headway.text.tokenizer import TextOptions, Tokenizer

pytestmark = pytest.mark.long

HEADS = ("MaskedLM", "PreTraining", "SequenceClassification", "QuestionAnswering", "MultipleChoice")
NAMES = [
    *(f"bert-{head}" for head in HEADS), "roberta-SequenceClassification", "distilbert-TokenClassification",
    "albert-groups-QuestionAnswering", "electra-PreTraining", "t5-encoder", "modernbert-biases-SequenceClassification",
]  # fmt: skip
SIZES = ((3, 11), (1, 2), (5, 17), (2, 1))


def given(rows: int, length: int, types: int) -> dict[str, torch.Tensor]:
    ids_BT = torch.randint(5, 60, (rows, length), generator=torch.Generator().manual_seed(rows))
    lengths_B = torch.tensor([max(1, length - 3 * row) for row in range(rows)])
    found = {"input_ids": ids_BT, "attention_mask": their_mask(ids_BT, lengths_B)}
    return found | ({"token_type_ids": ids_BT % types} if types > 1 else {})


def compared(theirs: Any, graph: Any, types: int, choices: bool = False) -> None:
    """Every output of transformers' model, where no token is padding."""
    for rows, length in SIZES:
        inputs = given(rows, length, types)
        if choices:
            inputs = {name: tensor[None] for name, tensor in inputs.items()}
        with torch.no_grad():
            expected = {name: value for name, value in theirs(**inputs).items() if isinstance(value, torch.Tensor)}
        found = ran(graph, **inputs)
        assert found.keys() == expected.keys()
        own = inputs["attention_mask"].bool().numpy()
        for name, value in expected.items():
            of_tokens = value.shape[:2] == own.shape and not choices
            a, b = (array[own] if of_tokens else array for array in (found[name], value.numpy()))
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=f"{name} {rows}x{length}")


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_with_its_head_gives_what_transformers_gives(tmp_path: Path, name: str) -> None:
    tiny = TINY[name]
    fewer = {key: 1 for key in ("num_hidden_layers", "n_layers", "num_layers") if key in tiny.settings}
    theirs = replace(tiny, settings=tiny.settings | ({} if "groups" in name else fewer)).build()
    theirs.save_pretrained(tmp_path / "hf")
    write_words(tmp_path / "hf")
    assert export_onnx(tmp_path / "hf", tmp_path / "onnx") == ["model.onnx"]
    compared(theirs, session(tmp_path / "onnx" / "model.onnx"), getattr(theirs.config, "type_vocab_size", 0),
             name.endswith("MultipleChoice"))  # fmt: skip


def test_a_bare_encoder_and_its_pooled_vector(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path / "hf", "Model")
    export_onnx(tmp_path / "hf", tmp_path / "onnx")
    graph = session(tmp_path / "onnx" / "model.onnx")
    inputs = given(3, 9, 2)
    inputs["input_ids"] = inputs["input_ids"] % 25
    with torch.no_grad():
        expected = theirs(**inputs)
        mine = read_model(tmp_path / "hf").model(
            TextInputs(inputs["input_ids"], inputs["attention_mask"].sum(1), inputs["token_type_ids"])
        )
    found, own = ran(graph, **inputs), inputs["attention_mask"].bool().numpy()
    np.testing.assert_allclose(found["pooler_output"], expected.pooler_output, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["pooler_output"], mine[1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        found["last_hidden_state"][own], expected.last_hidden_state.numpy()[own], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("pooling", ["mean_tokens", "max_tokens"])
def test_a_sentence_encoder_gives_the_vector_of_each_text(tmp_path: Path, pooling: str) -> None:
    write_encoder(tmp_path / "hf", "Model")
    declare_pooling(tmp_path / "hf", {f"pooling_mode_{pooling}": True}, unit=pooling.startswith("mean"))
    export_onnx(tmp_path / "hf", tmp_path / "onnx")
    texts = ["the cat sat on a mat", "how old are you ?", "dog"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    inputs = tokenizer(texts, padding=True, return_tensors="np")
    assert "token_type_ids" in inputs
    found = ran(session(tmp_path / "onnx" / "model.onnx"), **inputs)
    expected = load(tmp_path / "hf", "cpu").embed(texts)
    np.testing.assert_allclose(found["sentence_embedding"], expected, rtol=0, atol=1e-5)


def test_a_head_that_searches_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a b c"], TextOptions(kind="word", size=10, min_count=1))
    config, head = BertConfig(1, 8, 8, 2, max_length=8), Crf()
    model = build("bert", config, (len(tokenizer),), head)
    card = text_card("bert", config, (len(tokenizer),), TextOptions(kind="word", size=10, min_count=1), head=head)
    write_model(tmp_path / "mine", weights_of(model), card, with_tokenizers(card, tokenizer))
    with pytest.raises(InputError, match="vectors, words, .* as ONNX, not with head=crf"):
        export_onnx(tmp_path / "mine", tmp_path / "onnx")
