"""The logit lens: beside the model's own head put on each layer's hidden state by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import headway
from headway.batch import TextInputs
from headway.errors import InputError
from headway.explore.analyses.analysis import NoOptions, Text, Traced
from headway.explore.analyses.lens import LENS, by_layer, followed
from headway.explore.analyses.silence import ended, last_stack
from headway.generate.generator import Generator
from headway.models import parts
from headway.models.bert import Bert, BertConfig
from headway.models.gpt import GPT, GPTConfig
from headway.models.recurrent import Gru, Recurrent, RecurrentConfig
from headway.text.tokenizer import TextOptions, Tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from encoder_folders import their_inputs, write_encoder

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TEXT = "the cat sat on the mat"
TOKENIZER = Tokenizer.train([TEXT] * 3, TextOptions(size=290, exact=True))


def generator(model) -> Generator:
    torch.manual_seed(5)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return Generator(model.double().eval(), TOKENIZER, context=64, device=torch.device("cpu"))


def traces(loaded, text: str, second: str | None = None) -> list[np.ndarray]:
    traced = Traced(loaded, LENS.tensors)
    given = Text("here", text, second)
    return [one["logits"] for one in by_layer(traced, given, traced.trace(text, second))]


@pytest.mark.parametrize("norm", [parts.PreNorm(), parts.PostNorm()])
def test_each_layer_of_a_language_model_is_seen_through_its_norm_and_head(norm):
    mine = generator(GPT(GPTConfig(layers=3, width=12, heads=3, max_length=64, norm=norm), len(TOKENIZER)))
    found = traces(mine, TEXT)
    seen = mine.trace(TEXT, tensors=["hidden", "logits"])
    model = mine.model
    with torch.no_grad():
        for logits, name in zip(found, ["embed", "decoder.0", "decoder.1", "decoder.2"], strict=True):
            hidden = torch.from_numpy(seen[f"{name}.hidden"])
            np.testing.assert_allclose(logits, model.head(model.decoder.final(hidden)).numpy(), atol=1e-9)
    np.testing.assert_array_equal(found[-1], seen["logits"])


def test_transformers_own_layers_give_the_same_words(tmp_path):
    theirs = write_encoder(tmp_path, "ForMaskedLM")
    text = "the big cat [MASK] on the mat"
    found = traces(headway.load(tmp_path, "cpu"), text)
    with torch.no_grad():
        hidden = theirs(**their_inputs(tmp_path, [text]), output_hidden_states=True).hidden_states
        for logits, layer in zip(found, hidden, strict=True):
            np.testing.assert_allclose(logits, theirs.cls(layer)[0].numpy(), atol=1e-4)


def test_a_translators_decoder_is_looked_at_along_its_translation():
    mine = headway.load(FOLDER, "cpu")
    found = traces(mine, "He drives the car", "Il conduit la voiture")
    seen = mine.trace("He drives the car", "Il conduit la voiture", tensors=["hidden", "logits"])
    np.testing.assert_allclose(found[-1], seen["logits"], atol=1e-5)
    with torch.no_grad():
        inputs = torch.from_numpy(seen["embed_target.hidden"])[None]
        own = mine.model.head(mine.model.into_head(mine.model.decoder.final(inputs)))[0]
    np.testing.assert_allclose(found[0], own.numpy(), atol=1e-4)


def test_rank_and_probability_follow_the_last_layers_answer():
    last = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    early = np.log(np.array([[0.2, 0.5, 0.3], [0.25, 0.25, 0.5]]))
    rank, logp = followed([early, last])
    assert rank.tolist() == [[3, 1], [1, 1]]
    np.testing.assert_allclose(np.exp(logp), [[0.2, 0.5], [0.7, 0.8]])


def test_the_table_ends_with_the_model_itself_and_the_picture_shows_its_words(tmp_path):
    mine = generator(GPT(GPTConfig(layers=2, width=12, heads=3, max_length=64), len(TOKENIZER)))
    (tmp_path / "a.txt").write_text(f"{TEXT}\nthe mat\n", encoding="utf-8")
    table = LENS.run(Traced(mine, LENS.tensors), [str(tmp_path / "a.txt")], NoOptions())
    assert table.column("layer") == [-1, 0, 1]
    assert table.rows[-1][1:3] == (1.0, 1.0)
    with torch.no_grad():
        logps = [mine.model.score(torch.tensor([mine.ids(text)]))[0, 1:] for text in (TEXT, "the mat")]
    assert table.rows[-1][-1] == pytest.approx(float(torch.cat(logps).mean()), abs=1e-5)
    trace = mine.trace(TEXT, top=1)
    assert table.more["answers"][-1] == [row[0] for row in trace.about["next"]["labels"]][: len(table.more["places"])]
    np.testing.assert_allclose(
        table.more["p"][-1], np.exp([row[0] for row in trace.about["next"]["logp"]])[:16], atol=1e-4
    )
    assert LENS.draw(table, tmp_path / "lens.png").stat().st_size > 5000


def test_models_without_words_or_without_layers_are_one_clear_line(tmp_path):
    write_encoder(tmp_path, "Model")
    (tmp_path / "a.txt").write_text("the cat\n", encoding="utf-8")
    files = [str(tmp_path / "a.txt")]
    with pytest.raises(InputError, match="this model predicts no words"):
        LENS.run(Traced(headway.load(tmp_path, "cpu"), LENS.tensors), files, NoOptions())
    recurrent = generator(Recurrent(RecurrentConfig(cell=Gru(), layers=1, width=8), len(TOKENIZER)))
    with pytest.raises(InputError, match="is no stack of blocks"):
        LENS.run(Traced(recurrent, LENS.tensors), files, NoOptions())


def test_a_stack_is_whole_again_afterwards():
    model = generator(GPT(GPTConfig(layers=2, width=12, heads=3, max_length=64), len(TOKENIZER))).model
    ids = torch.tensor([[5, 6, 7]])
    before = model.score(ids)
    with ended(last_stack(model)[1], 1):
        assert not torch.equal(model.score(ids), before)
    assert torch.equal(model.score(ids), before)


def test_a_block_that_stands_for_several_layers_counts_as_often_as_it_is_passed():
    three, two = (
        Bert(BertConfig(layers=layers, width=12, inner=16, heads=3, groups=1, max_length=8), 20).double().eval()
        for layers in (3, 2)
    )
    two.load_state_dict(three.state_dict())
    ids = TextInputs(torch.tensor([[5, 6, 7]]))
    with torch.no_grad(), ended(three.encoder, 2):
        found = three.encode(ids).x_BTD
    torch.testing.assert_close(found, two.encode(ids).x_BTD)
    assert not torch.allclose(three.encode(ids).x_BTD, found)
