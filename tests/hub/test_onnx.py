"""ONNX Runtime with headway's graphs: equal logits with and without a cache, at sizes that were not exported. Long,
since the exporter takes its time and the libraries are large."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own import gpt, t5, translator

from headway.errors import InputError
from headway.folder import text_card, weights_of, with_tokenizers, write_model
from headway.hub.onnx_export import export_onnx
from headway.models import parts
from headway.models.gpt import GPTConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.t5 import T5Config
from headway.models.transformer import TransformerConfig
from headway.text.tokenizer import TextOptions, Tokenizer

pytestmark = pytest.mark.long

SMALL = TransformerConfig(1, 2, width=24, inner=37, heads=3, dropout=0.0, max_length=64)
TRANSLATORS = {
    "post": SMALL,
    "pre-learned": dataclasses.replace(SMALL, norm=parts.PreNorm(), position=parts.Learned()),
    "rotary-biased": dataclasses.replace(SMALL, position=parts.Rotary(), output_bias=True),
    "t5": T5Config(1, 2, width=20, head_width=6, inner=31, heads=3, dropout=0.0, max_length=64),
}


def session(path: Path) -> Any:
    import onnxruntime  # of an extra that only the long tests need

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def ran(graph: Any, **given: Any) -> dict[str, np.ndarray]:
    plain = {name: np.asarray(value) for name, value in given.items()}
    return dict(zip([out.name for out in graph.get_outputs()], graph.run(None, plain), strict=True))


def past(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.replace("present", "past_key_values"): value for name, value in found.items() if name != "logits"}


def made(folder: Path, config: Any) -> Any:
    return t5(folder, config) if isinstance(config, T5Config) else translator(folder, config)


@pytest.mark.parametrize("config", TRANSLATORS.values(), ids=TRANSLATORS.keys())
def test_a_translator_step_by_step_and_at_once(tmp_path: Path, config: Any) -> None:
    mine = made(tmp_path / "mine", config)
    assert len(export_onnx(tmp_path / "mine", tmp_path / "onnx")) == 3
    encoder, decoder, cached = (
        session(tmp_path / "onnx" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
    )
    for rows, source_length, target_length in ((3, 11, 9), (1, 2, 5), (5, 30, 20)):
        source, target = torch.randint(4, 250, (rows, source_length)), torch.randint(4, 250, (rows, target_length))
        lengths = torch.randint(1, source_length + 1, (rows,))
        lengths[0] = source_length
        mask = (torch.arange(source_length) < lengths[:, None]).long()
        with torch.no_grad():
            wanted = mine(source, target, lengths).numpy()
        (memory,) = ran(encoder, input_ids=source, attention_mask=mask).values()
        whole = ran(decoder, input_ids=target, encoder_hidden_states=memory, encoder_attention_mask=mask)
        np.testing.assert_allclose(whole["logits"], wanted, rtol=0, atol=2e-5)
        step = ran(decoder, input_ids=target[:, :1], encoder_hidden_states=memory, encoder_attention_mask=mask)
        np.testing.assert_allclose(step["logits"][:, 0], wanted[:, 0], rtol=0, atol=2e-5)
        kept = past(step)
        for t in range(1, target_length):
            step = ran(cached, input_ids=target[:, t : t + 1], encoder_attention_mask=mask, **kept)
            kept |= past(step)
            np.testing.assert_allclose(step["logits"][:, 0], wanted[:, t], rtol=0, atol=2e-5)


@pytest.mark.parametrize("position", [parts.Learned(), parts.Rotary()], ids=["learned", "rotary"])
def test_a_gpt_step_by_step_and_at_once(tmp_path: Path, position: Any) -> None:
    mine = gpt(tmp_path / "mine", GPTConfig(2, 24, heads=3, max_length=64, position=position))
    export_onnx(tmp_path / "mine", tmp_path / "onnx")
    decoder, cached = (session(tmp_path / "onnx" / f"{n}.onnx") for n in ("decoder_model", "decoder_with_past_model"))
    for rows, length in ((3, 17), (1, 2)):
        ids = torch.randint(4, 250, (rows, length))
        with torch.no_grad():
            wanted = mine(ids)[0].numpy()
        np.testing.assert_allclose(ran(decoder, input_ids=ids)["logits"], wanted, rtol=0, atol=2e-5)
        step = ran(decoder, input_ids=ids[:, :1])
        for t in range(1, length):
            step = ran(cached, input_ids=ids[:, t : t + 1], **past(step))
            np.testing.assert_allclose(step["logits"][:, 0], wanted[:, t], rtol=0, atol=2e-5)
    assert {path.name for path in (tmp_path / "onnx").iterdir()} >= {"tokenizer.json", "tokenizer_config.json"}


def test_what_has_no_decoder_is_refused(tmp_path: Path) -> None:
    text = TextOptions(kind="word", size=10, min_count=1)
    tokenizer = Tokenizer.train(["a b c"], text)
    config = NGramConfig(order=1)
    model = NGram(config, len(tokenizer))
    card = text_card("ngram", config, (len(tokenizer),), text)
    write_model(tmp_path / "mine", weights_of(model), card, with_tokenizers(card, tokenizer))
    with pytest.raises(InputError, match="not a ngram"):
        export_onnx(tmp_path / "mine", tmp_path / "onnx")
