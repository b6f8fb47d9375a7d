"""Folders whose vocabulary is a SentencePiece model only, beside a slow search and `transformers`."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hard_text import hard_lines
from own import SENTENCES
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tiny import MARIAN, Tiny

import headway
from headway.errors import InputError
from headway.hub.reading import import_foreign
from headway.hub.vocabularies import read_tokenizer, read_tokenizers

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
Pieces = list[tuple[str, float, int]]


def model(pieces: Pieces, kind: int = UNIGRAM, *, tidy: bool = True, prefix: bool = True, **training: Any) -> bytes:
    """The bytes of a file."""
    normalizing = {"name": "identity", "add_dummy_prefix": prefix, "remove_extra_whitespaces": tidy}
    training = {"model_type": kind, "byte_fallback": any(sort == BYTE for _, _, sort in pieces)} | training
    listed = [{"piece": text, "score": score, "type": sort} for text, score, sort in pieces]
    proto = ModelProto(pieces=listed, trainer_spec=training, normalizer_spec=normalizing)
    return bytes(proto.SerializeToString())


LETTERS = "abcdeé北 "
SPECIALS: Pieces = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]


def drawn_pieces(seed: int, count: int = 60) -> list[str]:
    """Every letter but the last two, and words of them."""
    chance = random.Random(seed)
    words = {"".join(chance.choices(LETTERS[:5], k=chance.randint(2, 5))) for _ in range(count)}
    spaced = {f"▁{word}" for word in list(words)[::2]}
    return ["▁", *LETTERS[:6], *sorted(words | spaced)]


def drawn_lines(seed: int, letters: str = LETTERS) -> list[str]:
    chance = random.Random(seed)
    return ["", " ", "  a  b ", *("".join(chance.choices(letters, k=chance.randint(1, 30))) for _ in range(200))]


def unigram(seed: int = 1) -> Pieces:
    chance = random.Random(seed)
    return [*SPECIALS, *((text, -chance.uniform(1, 12), NORMAL) for text in drawn_pieces(seed))]


def spaced(text: str) -> str:
    return "".join(f"▁{word}" for word in text.split())


def most_probable(text: str, pieces: Pieces) -> list[str]:
    """The cut of the largest sum of scores; a letter without a piece costs 10 more than the rarest. Of the
    same pieces in another order, the short one first."""
    scores = {piece: score for piece, score, sort in pieces if sort == NORMAL}
    rarest = min(scores.values())

    @cache
    def best(at: int) -> tuple[float, tuple[str, ...]]:
        if at == len(text):
            return 0.0, ()
        cuts = [text[at:end] for end in range(at + 1, len(text) + 1)]
        found = [(scores[cut], cut) for cut in cuts if cut in scores]
        if text[at] not in scores:
            found.append((rarest - 10, "<unk>"))
        options = []
        for score, cut in found:
            rest = best(at + (len(cut) if cut != "<unk>" else 1))
            options.append((score + rest[0], (cut, *rest[1])))
        return max(options, key=lambda option: (round(option[0], 6), [-len(cut) for cut in option[1]]))

    cut = best(0)[1]
    return [piece for n, piece in enumerate(cut) if piece != "<unk>" or cut[n - 1 : n] != ("<unk>",)]


def write(folder: Path, kind: str, files: dict[str, bytes], **facts: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_unigram_pieces_are_the_most_probable_and_give_the_text_back(tmp_path: Path) -> None:
    pieces = unigram()
    mine = read_tokenizer(write(tmp_path, "t5", {"spiece.model": model(pieces)}, extra_ids=7))
    number_of = {text: n for n, (text, _, _) in enumerate(pieces)}
    lines = drawn_lines(2)
    expected = [[number_of[piece] for piece in most_probable(spaced(line), pieces)] for line in lines]
    assert mine.encode_batch(lines) == expected
    assert mine.framed_batch(lines) == [[*ids, 1] for ids in expected]
    known = [line for line in lines if "北" not in line]
    assert mine.decode_batch(mine.framed_batch(known)) == [" ".join(line.split()) for line in known]
    assert [mine.pad, mine.end, mine.unknown, mine.start] == [0, 1, 2, None]
    gaps = [i for i in mine.encode("a <extra_id_0><extra_id_6>b") if i >= len(pieces)]
    assert gaps == [len(pieces) + 6, len(pieces)]


def pairs_joined(text: str, pieces: Pieces) -> list[str]:
    """Of all neighbours the two whose piece has the best score are joined, the first of equals, again and again."""
    scores = {piece: score for piece, score, sort in pieces if sort == NORMAL}
    parts = list(text)
    while True:
        joins = [(-scores[a + b], n) for n, (a, b) in enumerate(zip(parts, parts[1:], strict=False)) if a + b in scores]
        if not joins:
            break
        at = min(joins)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    raw = [[part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()] for part in parts]
    return [piece for part in raw for piece in part]


@pytest.mark.parametrize("prefix", [True, False], ids=["llama", "gemma"])
def test_bpe_pieces_are_joined_best_first_and_other_letters_are_bytes(tmp_path: Path, prefix: bool) -> None:
    specials: Pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    listed = random.Random(4).sample(drawn_pieces(3)[8:], 60)
    joined = [*listed, "▁▁", *(f"{a}{b}" for a in "abcde▁" for b in "abcde")]
    whole = [*specials, *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256))]
    ordered = [*dict.fromkeys(joined), *"▁abcdeé"]
    pieces: Pieces = [*whole, *((text, -float(rank), NORMAL) for rank, text in enumerate(ordered))]
    files = {"tokenizer.model": model(pieces, BPE, tidy=False, prefix=prefix)}
    mine = read_tokenizer(write(tmp_path, "llama" if prefix else "mistral", files))
    number_of = {text: n for n, (text, _, _) in enumerate(pieces)}
    lines = [line for line in drawn_lines(5, LETTERS + "\n🙂") if line and not (prefix and line.startswith(" "))]
    shown = [("▁" if prefix else "") + line.replace(" ", "▁") for line in lines]
    expected = [[number_of[piece] for piece in pairs_joined(line, pieces)] for line in shown]
    assert mine.framed_batch(lines) == [[1, *ids] for ids in expected]
    assert mine.decode_batch(expected) == lines


def test_a_piece_of_the_users_is_never_cut_and_is_text(tmp_path: Path) -> None:
    pieces = [*unigram(), ("<turn>", 0.0, USER)]
    mine = read_tokenizer(write(tmp_path, "t5", {"spiece.model": model(pieces)}, extra_ids=0))
    ids = mine.encode("a <turn> b</s>")
    assert ids.count(len(pieces) - 1) == 1 and ids[-1] == 1
    assert mine.decode(ids) == "a<turn> b"


def marian_folder(folder: Path) -> dict[str, int]:
    """Each side cuts by its own pieces; vocab.json numbers them all in an order of its own. Letters: as many as the
    sentences of the tests have."""
    letters = sorted({letter for text in SENTENCES for letter in text if letter != " "})
    sides: list[Pieces] = []
    for seed, also in ((1, "ü"), (2, "ß")):
        chance = random.Random(seed)
        words = {word[: chance.randint(2, 6)] for text in SENTENCES for word in text.split()}
        texts = ["▁", *letters, also, *sorted(words - {*letters, also}), *(f"▁{word}" for word in sorted(words)[::2])]
        sides.append(
            [SPECIALS[2], ("<s>", 0.0, CONTROL), SPECIALS[1], *((t, -chance.uniform(1, 9), NORMAL) for t in texts)]
        )
    names = {text for side in sides for text, _, sort in side if sort == NORMAL}
    entries = ["</s>", "<unk>", *random.Random(3).sample(sorted(names), len(names)), ">>de<<", "<pad>"]
    files = {f"{name}.spm": model(side) for name, side in zip(("source", "target"), sides, strict=True)}
    write(folder, "marian", files)
    places = {text: n for n, text in enumerate(entries)}
    (folder / "vocab.json").write_text(json.dumps(places))
    for name, side in zip(("source", "target"), sides, strict=True):
        (folder / f"{name}.json").write_text(json.dumps(side))
    return places


def test_each_side_of_a_marian_cuts_by_its_own_pieces(tmp_path: Path) -> None:
    places = marian_folder(tmp_path)
    both = read_tokenizers(tmp_path)
    for name, mine, foreign in zip(("source", "target"), both, "ßü", strict=True):
        pieces: Pieces = [tuple(piece) for piece in json.loads((tmp_path / f"{name}.json").read_text())]
        expected = [[places[piece] for piece in most_probable(spaced(text), pieces)] for text in SENTENCES]
        assert mine.encode_batch(SENTENCES) == expected
        assert (mine.opening, mine.closing) == ((), (places["</s>"],))
        # A letter that only the other side has: its piece, not the unknown.
        assert places[foreign] in mine.encode(f"a{foreign}") and places["<unk>"] in mine.encode("a#")
        assert (mine.pad, mine.end, mine.unknown, len(mine)) == (places["<pad>"], 0, 1, len(places))
    source, target = both
    assert source.encode_batch(SENTENCES) != target.encode_batch(SENTENCES)
    assert target.decode_batch(source.encode_batch(SENTENCES)) == SENTENCES
    assert source.encode(">>de<< a")[0] == places[">>de<<"]


def test_a_marian_whose_files_do_not_belong_together_is_refused(tmp_path: Path) -> None:
    places = marian_folder(tmp_path)
    for change, told in (
        ({"<pad>": None}, "vocab.json lacks the special '<pad>'"),
        ({"▁": len(places) + 3}, "each number once"),
    ):
        wrong = {text: n for text, n in (places | change).items() if n is not None}
        (tmp_path / "vocab.json").write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=told):
            read_tokenizers(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps(places))
    (tmp_path / "target.spm").write_bytes(model(unigram(), BPE))
    with pytest.raises(InputError, match="target.spm does not belong to vocab.json"):
        read_tokenizers(tmp_path)


def test_a_marian_with_two_tokenizers_is_imported_with_both(tmp_path: Path) -> None:
    size = len(marian_folder(tmp_path / "hf"))
    ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0, "forced_eos_token_id": 0}
    theirs = Tiny("MarianMTModel", MARIAN | {"vocab_size": size, "max_position_embeddings": 64} | ids).build()
    theirs.save_pretrained(tmp_path / "hf")
    import_foreign(str(tmp_path / "hf"), tmp_path / "mine")
    direct, mine = (headway.load(tmp_path / name, "cpu") for name in ("hf", "mine"))
    assert mine.translate(SENTENCES[:3], max_extra=4) == direct.translate(SENTENCES[:3], max_extra=4)
    assert mine.source_tokenizer.encode_batch(SENTENCES) == direct.source_tokenizer.encode_batch(SENTENCES)
    assert mine.target_tokenizer.encode_batch(SENTENCES) == direct.target_tokenizer.encode_batch(SENTENCES)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "has no tokens"),
        (model(unigram())[:-3], "it is broken"),
        (b"\xff\xff", "it is broken"),
        (b"\xff" * 1_000_000, "it is broken"),
        (model([*SPECIALS, ("a" * 20_000, 0.0, NORMAL)]), "a token of more than 10,000 letters"),
        (b"\x0a\x08\x0a\x01\xff\x15" + bytes(4), "readable text"),  # a token that is not UTF-8
        (model([("", 0.0, NORMAL)]), "a token without readable text"),
        (model(unigram(), 3), "model_type 3"),
        (model(unigram(), treat_whitespace_as_suffix=True), "treat_whitespace_as_suffix"),
        (model([*unigram(), ("x", 0.0, UNUSED)]), "switched off"),
    ],
)
def test_a_file_that_is_not_understood_is_told_in_one_line(tmp_path: Path, data: bytes, told: str) -> None:
    write(tmp_path, "t5", {"spiece.model": data})
    with pytest.raises(InputError, match=told) as caught:
        read_tokenizer(tmp_path)
    assert "spiece.model" in str(caught.value) and "\n" not in str(caught.value)


def learned(path: Path, **settings: Any) -> None:
    import sentencepiece

    lines = [line.replace("\n", " ") for line in hard_lines(2500, seed=1)]
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, minloglevel=2, character_coverage=0.99, **settings
        )  # fmt: skip


PLAIN = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "vocab_size": 3800,
         "remove_extra_whitespaces": False}  # fmt: skip
GEMMA = {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "pad_piece": "<pad>",
         "eos_piece": "<eos>", "bos_piece": "<bos>", "user_defined_symbols": ["<mask>", "<start_of_turn>"]}  # fmt: skip
FAMILIES = {
    "t5": ("spiece.model", {"vocab_size": 3300, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, {}),
    "llama": ("tokenizer.model", PLAIN, {"add_bos_token": True}),
    "gemma": ("tokenizer.model", PLAIN | GEMMA, {"add_bos_token": True}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", FAMILIES)
def test_ids_and_texts_of_learned_models_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    import transformers

    name, settings, facts = FAMILIES[kind]
    write(tmp_path, kind, {}, **facts)
    learned(tmp_path / name, **settings)
    theirs = getattr(transformers, f"{kind.title()}Tokenizer").from_pretrained(tmp_path)
    mine = read_tokenizer(tmp_path)
    lines = hard_lines(10_000)
    ids = theirs(lines)["input_ids"]
    assert mine.framed_batch(lines) == ids
    assert mine.decode_batch(ids) == theirs.batch_decode(ids, skip_special_tokens=True)
    assert mine.decode_batch(ids, specials=True) == theirs.batch_decode(ids)
    assert len(mine) == len(theirs)
