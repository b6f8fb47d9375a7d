"""Encoder-decoders of `transformers` in headway's hands: the folder says how a target begins, ends and is searched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from own import HARD, SENTENCES
from tiny import BART, MARIAN, T5, Tiny
from tokenizers import processors
from transformers import AutoTokenizer

import headway
from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.text.tokenizer import Symbols, TextOptions, Tokenizer

VOCABULARY = 400
TINY = {
    # As Marian's own: the padding starts a target, is never written, and </s> is not at headway's place.
    "marian": Tiny(
        "MarianMTModel",
        MARIAN | {"vocab_size": VOCABULARY, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 8,
                  "forced_eos_token_id": 8, "max_position_embeddings": 64},
    ),
    # As many layers on both sides: where they differ, the cache of transformers 5.22 fails.
    "t5": Tiny(
        "T5ForConditionalGeneration",
        T5 | {"vocab_size": VOCABULARY, "eos_token_id": 8, "pad_token_id": 0, "num_decoder_layers": 2},
    ),
}  # fmt: skip
LANGUAGE = 11
OF_LANGUAGES = {
    name: Tiny(
        f"{kind}ForConditionalGeneration",
        BART | {"vocab_size": VOCABULARY, "eos_token_id": 8, "decoder_start_token_id": 8, "forced_eos_token_id": 8,
                "max_position_embeddings": 64, "pad_token_id": pad},
    )
    for name, kind, pad in (("bart", "Bart", 1), ("mbart", "MBart", 1), ("m2m_100", "M2M100", 2))
}  # fmt: skip
TINY |= OF_LANGUAGES


def often_ends(model: Any) -> None:
    """At a limit transformers ends a hypothesis for nothing, headway at its price: here few come so far."""
    if hasattr(model, "final_logits_bias"):
        with torch.no_grad():
            model.final_logits_bias[0, 8] = 2.5


def saved(name: str, folder: Path, **generation: Any) -> tuple[Any, Any]:
    """A folder as transformers writes it, its model and its tokenizer. Id 8 ends a text."""
    theirs = TINY[name].build()
    if name in OF_LANGUAGES:
        often_ends(theirs)
    inner = Tokenizer.train([*SENTENCES, *HARD], TextOptions(size=VOCABULARY, min_count=1)).inner
    end = inner.id_to_token(8)
    inner.post_processor = processors.TemplateProcessing(single=f"$A {end}", pair=None, special_tokens=[(end, 8)])
    for key, value in generation.items():
        setattr(theirs.generation_config, key, value)
    theirs.save_pretrained(folder)
    inner.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("a").input_ids[-1] == 8
    return theirs, tokenizer


@pytest.mark.parametrize("beam", [1, 4], ids=["greedy", "beam"])
@pytest.mark.parametrize("name", TINY)
def test_a_folder_translates_as_in_transformers(tmp_path: Path, name: str, beam: int) -> None:
    searched = {"early_stopping": True, "length_penalty": 0.6} if beam > 1 else {}
    # The end is asked for at the limit: a random model does not come to one of itself.
    wishes = {"num_beams": beam, "bad_words_ids": [[0], [9]], "forced_eos_token_id": 8}
    wishes |= {"forced_bos_token_id": LANGUAGE} if name in OF_LANGUAGES else {}
    theirs, tokenizer = saved(name, tmp_path / "hf", **wishes, **searched)
    mine = headway.load(tmp_path / "hf", "cpu")
    start, first = (8, LANGUAGE) if name in OF_LANGUAGES else (0, None)
    assert mine.symbols == Symbols(start, 8, (0, 9), first) and mine.search.beam == beam
    texts = SENTENCES[:6]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    assert [mine.framed(ids) for ids in mine.encode(texts)] == tokenizer(texts).input_ids
    expected = theirs.generate(**batch, max_length=13)
    found = mine.translate_n(texts, max_ratio=0.0, max_extra=11)
    assert [best[0].text for best in found] == tokenizer.batch_decode(expected, skip_special_tokens=True)
    assert all(best[0].tokens[-1] == tokenizer.eos_token for best in found)


@pytest.mark.parametrize("name", TINY)
def test_an_imported_folder_is_the_same_translator(tmp_path: Path, name: str) -> None:
    language = {"forced_bos_token_id": LANGUAGE} if name in OF_LANGUAGES else {}
    saved(name, tmp_path / "hf", num_beams=3, early_stopping=True, **language)
    import_foreign(str(tmp_path / "hf"), tmp_path / "mine")
    direct, mine = headway.load(tmp_path / "hf", "cpu"), headway.load(tmp_path / "mine", "cpu")
    assert (mine.card.symbols, mine.search) == (direct.card.symbols, direct.search)
    texts = [*SENTENCES[:5], *HARD]
    assert mine.translate(texts, max_extra=5) == direct.translate(texts, max_extra=5)


@pytest.mark.parametrize("name", OF_LANGUAGES)
def test_a_target_begins_with_its_language(tmp_path: Path, name: str) -> None:
    """Where it is searched for, sampled, or given; and the folder goes back as it came."""
    saved(name, tmp_path / "hf", forced_bos_token_id=LANGUAGE)
    mine = headway.load(tmp_path / "hf", "cpu")
    token = mine.target_tokenizer.tokens([LANGUAGE])[0]
    ((found,),) = mine.translate_n(SENTENCES[:1], max_ratio=0.0, max_extra=6, beam=1)
    assert found.tokens[0] == token and found.token_scores[0] == 0.0
    ((sampled,),) = mine.sample_n(SENTENCES[:1], max_new=6, seed=3)
    assert sampled.written.ids[0] == LANGUAGE and sampled.written.logps[0] == 0.0
    (chosen,) = mine.sample([SENTENCES[0]], choices=[SENTENCES[1], SENTENCES[2]])
    assert chosen.strip() and mine.choice("x")[0] == LANGUAGE
    assert mine.trace(SENTENCES[0], target="x").tracks["target"].labels[1] == token
    kind = export_hf(tmp_path / "hf", tmp_path / "again")
    assert kind == name
    for file in ("generation_config.json", "config.json"):
        assert json.loads((tmp_path / "again" / file).read_text())["forced_bos_token_id"] == LANGUAGE
    again = headway.load(tmp_path / "again", "cpu")
    assert again.translate(SENTENCES[:4], max_extra=5) == mine.translate(SENTENCES[:4], max_extra=5)


@pytest.mark.parametrize("name", ["mbart", "m2m_100"])
def test_a_folder_that_names_no_target_language_is_refused(tmp_path: Path, name: str) -> None:
    saved(name, tmp_path / "hf")
    with pytest.raises(InputError, match="which language it translates to: set forced_bos_token_id in gener"):
        headway.load(tmp_path / "hf", "cpu")
    path = tmp_path / "hf" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": LANGUAGE}))
    assert headway.load(tmp_path / "hf", "cpu").symbols.start == LANGUAGE  # as mBART's first translators have it


def test_its_attention_has_a_column_for_all_that_stands_around_a_source(tmp_path: Path) -> None:
    saved("marian", tmp_path / "hf")
    mine = headway.load(tmp_path / "hf", "cpu")
    ((found,),) = mine.translate_n(SENTENCES[:1], attention=True, max_ratio=0.0, max_extra=6)
    seen = found.attention
    assert seen.weights_LHTS.shape[-2:] == (len(seen.target_owner), len(seen.source_owner))
    assert seen.source_owner[-1] == -1 and seen.by_word().shape == (len(seen.target_words), len(seen.source_words))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("eos_token_id", None, "lacks eos_token_id"),
        ("bad_words_ids", [[1, 2]], "several ids in a row"),
        ("bad_words_ids", 3, "several ids in a row"),
        ("bad_words_ids", [["x"]], "is decoded with the id x"),
        ("eos_token_id", 10**6, "is decoded with the id 1000000"),
        ("num_beams", "x", "num_beams is x, expected a whole number"),
        ("length_penalty", "x", "length_penalty is x, expected a number"),
        ("decoder_ffn_dim", 38, "decoder_ffn_dim is 38"),
        ("normalize_before", True, "normalize_before is True"),
        ("tie_word_embeddings", False, "tie_word_embeddings is False"),
        ("activation_function", "mish", "no activation_function 'mish'"),
        ("layer_scale", 0.5, "'layer_scale' \\(0.5\\)"),
    ],
)
def test_a_config_that_is_not_held_is_refused_by_its_key(tmp_path: Path, key: str, value: Any, told: str) -> None:
    saved("marian", tmp_path / "hf")
    (tmp_path / "hf" / "generation_config.json").unlink()
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=told):
        headway.load(tmp_path / "hf", "cpu")


def test_a_head_of_its_own_is_seen_in_the_weights(tmp_path: Path) -> None:
    """Files of newer programs say that T5's head is tied where it is not."""
    theirs, tokenizer = saved("t5", tmp_path / "hf")
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn_like(theirs.lm_head.weight))
    theirs.config.scale_decoder_outputs = False
    theirs.save_pretrained(tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["tie_word_embeddings"] is True
    mine = headway.load(tmp_path / "hf", "cpu")
    ids = torch.randint(10, VOCABULARY, (2, 5))
    with torch.no_grad():
        expected = theirs(ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(mine.model(ids, ids), expected, rtol=0, atol=1e-4)
    assert mine.model.config.tied is False
