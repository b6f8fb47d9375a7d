"""What headway trains, opened by `transformers`: equal numbers, equal ids, equal text; and back again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from own import HARD, PAIRS, SENTENCES, drawn, gpt, t5, taught, translator
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import headway
from headway.errors import InputError
from headway.folder import text_card, weights_of, with_tokenizers, write_model
from headway.hub.families.restated import halved
from headway.hub.hf_export import export_hf
from headway.models import parts
from headway.models.gpt import GPTConfig
from headway.models.t5 import T5Config
from headway.models.transformer import Transformer, TransformerConfig
from headway.tasks.loading import load as load_generator
from headway.text.tokenizer import TextOptions, Tokenizer

SMALL = TransformerConfig(2, 3, width=24, inner=37, heads=3, dropout=0.0, max_length=64)
GPT_SMALL = GPTConfig(2, 24, heads=3, max_length=64)

TRANSLATORS = {
    "post": (SMALL, "marian"),
    "pre": (dataclasses.replace(SMALL, norm=parts.PreNorm()), "pegasus"),
    "odd-width": (dataclasses.replace(SMALL, width=21, feed_forward=parts.Gelu()), "marian"),
    "silu-halves": (
        dataclasses.replace(SMALL, feed_forward=parts.Silu(), position=parts.Sinusoidal(order="halves")), "marian",
    ),
    "t5": (T5Config(1, 2, width=20, head_width=6, inner=31, heads=3, max_length=64), "t5"),
    "biased": (dataclasses.replace(SMALL, output_bias=True, scaled=False, norm=parts.PreNorm()), "pegasus"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "model_type"), TRANSLATORS.values(), ids=TRANSLATORS.keys())
def test_a_translator_has_equal_logits_in_transformers(tmp_path: Path, config, model_type: str) -> None:
    mine = (t5 if isinstance(config, T5Config) else translator)(tmp_path / "mine", config)
    assert export_hf(tmp_path / "mine", tmp_path / "hf") == model_type
    theirs, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(info.values()), info
    source, target, lengths = torch.randint(4, 300, (3, 9)), torch.randint(4, 300, (3, 7)), torch.tensor([9, 5, 1])
    mask = (torch.arange(9) < lengths[:, None]).long()
    with torch.no_grad():
        expected = theirs.eval()(source, attention_mask=mask, decoder_input_ids=target).logits
        found = mine(source, target, lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("width", [24, 21], ids=["even", "odd"])
@pytest.mark.parametrize("norm", [parts.PostNorm(), parts.PreNorm()], ids=["post", "pre"])
@pytest.mark.parametrize("embeddings", ["shared", "tied", "separate"])
def test_sines_first_is_the_same_model_with_its_columns_moved(norm, width: int, embeddings) -> None:
    config = dataclasses.replace(SMALL, norm=norm, width=width, embeddings=embeddings)
    mine = drawn(lambda: Transformer(config, 31, 31)).double()
    moved_config, weights = halved(config, {name: weight.detach() for name, weight in mine.named_parameters()})
    moved = Transformer(moved_config, 31, 31).double().eval()
    moved.load_state_dict(weights, strict=False)
    source, target, lengths = torch.randint(4, 31, (3, 9)), torch.randint(4, 31, (3, 7)), torch.tensor([9, 5, 1])
    with torch.no_grad():
        expected = mine(source, target, lengths)
        torch.testing.assert_close(moved(source, target, lengths), expected, rtol=0, atol=1e-6)
        # A table of sinusoids is float32; without it the two are equal to the last digits.
        for model in (mine, moved):
            model.embed_source.position.table_PD.zero_()
            model.embed_target.position.table_PD.zero_()
        torch.testing.assert_close(moved(source, target, lengths), mine(source, target, lengths), rtol=0, atol=1e-12)
    assert not torch.equal(weights["embed_source.table.weight"], mine.embed_source.table.weight)


TEXTS = {
    "bpe": TextOptions(size=400, min_count=1),
    "lowercase": TextOptions(size=400, min_count=1, lowercase=True),
    "word": TextOptions(kind="word", size=400, min_count=1),
    "char": TextOptions(kind="char", size=400, min_count=1),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_autotokenizer_gives_the_ids_and_the_text_that_headway_gives(tmp_path: Path, text: TextOptions) -> None:
    translator(tmp_path / "mine", SMALL, text)
    export_hf(tmp_path / "mine", tmp_path / "hf")
    mine, theirs = headway.load(tmp_path / "mine", "cpu"), AutoTokenizer.from_pretrained(tmp_path / "hf")
    lines = [*HARD, *SENTENCES]
    found = theirs(lines).input_ids
    assert found == [mine.framed(ids) for ids in mine.encode(lines)]
    # A special that was not said is not read; <unk> is one for them, a word for headway.
    known = [ids for ids in found if 3 not in ids]
    assert known and theirs.batch_decode(known, skip_special_tokens=True) == mine.target_tokenizer.decode_batch(known)
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2, 3)


@pytest.fixture(scope="module", params=[parts.PostNorm(), parts.PreNorm()], ids=["post", "pre"])
def trained(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / request.param.name
    taught(folder, dataclasses.replace(SMALL, encoder_layers=1, decoder_layers=2, width=36, norm=request.param))
    return folder


def test_generate_gives_the_same_text_greedy_and_by_beam(tmp_path: Path, trained: Path) -> None:
    export_hf(trained, tmp_path / "hf")
    mine, tokenizer = headway.load(trained, "cpu"), AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    as_exported = theirs.generate(**batch)  # beam, length penalty and end as the folder says
    greedy = theirs.generate(**batch, num_beams=1)
    assert tokenizer.batch_decode(as_exported, skip_special_tokens=True) == mine.translate(SENTENCES)
    assert tokenizer.batch_decode(greedy, skip_special_tokens=True) == mine.translate(SENTENCES, beam=1)
    # Headway's limit goes with the source's length, theirs is one for all: so only what ends of itself.
    cut = [" ".join(text.split()[:-1]) for text in SENTENCES]
    greedy = theirs.generate(**tokenizer(cut, return_tensors="pt", padding=True), num_beams=1)
    spelled = tokenizer.batch_decode(greedy, skip_special_tokens=True)
    limits = [mine.search.longest(len(ids) + 1, 60) for ids in mine.encode(cut)]
    wanted = [best[0] for best in mine.translate_n(cut, beam=1)]
    ended = [i for i, found in enumerate(wanted) if len(found.tokens) <= limits[i]]
    assert ended and [spelled[i] for i in ended] == [wanted[i].text for i in ended]
    right = sum(text == row.target for text, row in zip(mine.translate(SENTENCES), PAIRS, strict=True))
    assert right > len(PAIRS) // 2, "a model that learned nothing shows nothing"


def test_a_translator_comes_back_as_it_went(tmp_path: Path, trained: Path) -> None:
    export_hf(trained, tmp_path / "hf")
    mine, back = headway.load(trained, "cpu"), headway.load(tmp_path / "hf", "cpu")
    assert (back.card.symbols, back.search) == (mine.card.symbols, mine.search)
    assert back.translate([*SENTENCES, *HARD]) == mine.translate([*SENTENCES, *HARD])
    export_hf(tmp_path / "hf", tmp_path / "again")
    for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "hf" / name).read_bytes(), name
    theirs = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert theirs(HARD).input_ids == [mine.framed(ids) for ids in mine.encode(HARD)]


GPTS = {
    "learned": GPT_SMALL,
    "char-like": dataclasses.replace(GPT_SMALL, bias=False),
    "sinusoids": dataclasses.replace(GPT_SMALL, position=parts.Sinusoidal(), tied=False),
    "relu": dataclasses.replace(GPT_SMALL, feed_forward=parts.Relu(), inner=37),
}


@pytest.mark.parametrize("config", GPTS.values(), ids=GPTS.keys())
def test_a_gpt_has_equal_logits_and_equal_greedy_text_in_transformers(tmp_path: Path, config: GPTConfig) -> None:
    mine = gpt(tmp_path / "mine", config)
    assert export_hf(tmp_path / "mine", tmp_path / "hf") == "gpt2"
    theirs, info = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(info.values()), info
    ids = torch.randint(4, 300, (3, 17))
    with torch.no_grad():
        torch.testing.assert_close(mine(ids)[0], theirs.eval()(ids).logits, rtol=0, atol=2e-5)
    generator, tokenizer = load_generator(tmp_path / "mine", "cpu"), AutoTokenizer.from_pretrained(tmp_path / "hf")
    prompts = [SENTENCES[0], " " + SENTENCES[1], "</s> x"]
    assert tokenizer(prompts).input_ids == generator.tokenizer.encode_batch(prompts)
    for prompt, (passage,) in zip(prompts, generator.generate_n(prompts, temperature=0, max_new=20), strict=True):
        batch = tokenizer(prompt, return_tensors="pt")
        whole = theirs.generate(**batch, do_sample=False, max_new_tokens=20)[0, batch.input_ids.shape[1] :]
        assert [i for i in whole.tolist() if i != tokenizer.eos_token_id] == passage.written.ids
    back = load_generator(tmp_path / "hf", "cpu")
    wanted, found = (one.generate_n(prompts, temperature=0, max_new=20) for one in (generator, back))
    assert [some[0].written.ids for some in found] == [some[0].written.ids for some in wanted]


def test_a_gpt_of_lines_begins_each_prompt_where_a_line_begins(tmp_path: Path) -> None:
    gpt(tmp_path / "mine", GPT_SMALL, TextOptions(size=400, min_count=1, lines=True))
    export_hf(tmp_path / "mine", tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    mine = load_generator(tmp_path / "mine", "cpu")
    assert tokenizer("He sings").input_ids == [*mine.opening, *mine.tokenizer.encode("He sings")]
    assert mine.opening == (2,)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"position": parts.Learned()}, "model.position=learned"),
        ({"position": parts.Rotary()}, "model.position=rotary"),
        ({"position": parts.Sinusoidal(base=500.0)}, "model.position"),
        ({"feed_forward": parts.Gated()}, "model.feed_forward=gated"),
        ({"embeddings": "separate"}, "model.embeddings=separate"),
        ({"norm": parts.PostNorm(1e-3)}, "model.norm.epsilon=0.001"),
        ({"norm": parts.PreRmsNorm()}, "model.norm=pre-rms"),
        ({"norm": parts.NoNorm()}, "model.norm=none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_no_family_holds_is_named(tmp_path: Path, change, told: str) -> None:
    translator(tmp_path / "mine", dataclasses.replace(SMALL, **change))
    with pytest.raises(InputError, match=told):
        export_hf(tmp_path / "mine", tmp_path / "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


@pytest.mark.parametrize("norm", [parts.PreRmsNorm(), parts.BatchNorm(), parts.ResidualOnly()], ids=lambda n: n.name)
def test_a_gpt_with_a_norm_that_no_family_has_is_refused(tmp_path: Path, norm: parts.Norm) -> None:
    gpt(tmp_path / "mine", dataclasses.replace(GPT_SMALL, norm=norm))
    with pytest.raises(InputError, match=f"model.norm={norm.name}"):
        export_hf(tmp_path / "mine", tmp_path / "hf")


def test_two_vocabularies_are_refused(tmp_path: Path) -> None:
    text = TextOptions(size=400, min_count=1, joint=False)
    source, target = Tokenizer.train(SENTENCES, text), Tokenizer.train(HARD, text)
    sizes, config = (len(source), len(target)), dataclasses.replace(SMALL, embeddings="tied")
    model = Transformer(config, *sizes)
    card = text_card("transformer", config, sizes, text)
    write_model(tmp_path / "mine", weights_of(model), card, with_tokenizers(card, source, target))
    with pytest.raises(InputError, match=r"this translator two: text\.joint=false has no counterpart there"):
        export_hf(tmp_path / "mine", tmp_path / "hf")


def test_words_that_keep_their_spaces_have_no_tokenizer_json(tmp_path: Path) -> None:
    gpt(tmp_path / "mine", GPT_SMALL, TextOptions(kind="word", size=400, min_count=1, exact=True))
    with pytest.raises(InputError, match=r"text\.exact=true has no counterpart"):
        export_hf(tmp_path / "mine", tmp_path / "hf")


def test_the_folder_says_how_it_is_searched(tmp_path: Path, trained: Path) -> None:
    export_hf(trained, tmp_path / "hf")
    facts = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (facts["num_beams"], facts["early_stopping"], facts["decoder_start_token_id"]) == (3, True, 1)
