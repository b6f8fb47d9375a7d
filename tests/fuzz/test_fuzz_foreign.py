"""Folders and files of other programs, damaged: an answer or one clear line, in time and memory.

They have no checksums, so the answer may be another than that of the whole folder. A short round damages each a few
times; HEADWAY_FUZZ=N does it N times as often.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from attacked import OUT, PLACE, Attacked, Kind, drawn, make_all
from forked import ROUNDS, Record

Make = Callable[[Path], None]
TIMES = 1  # that each folder is damaged in a short round
ON_CPU = ("--device", "cpu", "--threads", "1")
TEXTS = ["the cat sat on the mat", "a dog ran under the tree", "the red cat is old"]
CHAT = ("generate", PLACE, "--prompt", "the", "--chat", "--max-new-tokens", "3", *ON_CPU)
GENERATE = ("generate", PLACE, "--prompt", "the", "--max-new-tokens", "3", *ON_CPU)
SCORE = ("score", PLACE, "--text", "the cat", *ON_CPU)
IMPORT = ("import", PLACE, OUT)
TRANSLATE = ("translate", PLACE, "PLACE/texts.txt", *ON_CPU)
FILL = ("fill", PLACE, "--text", "the [MASK] sat", *ON_CPU)
PREDICT = ("predict", PLACE, "--text", "the cat sat", *ON_CPU)
EMBED = ("embed", PLACE, "--text", "the cat sat", *ON_CPU)


def gpt2(folder: Path) -> None:
    from foreign_world import write_language_model

    write_language_model(folder, "gpt2")


def llama_with_template(folder: Path) -> None:
    from foreign_world import CHAT as TEMPLATE
    from foreign_world import write_language_model

    write_language_model(folder, "llama", TEMPLATE)


def old_gpt2(folder: Path) -> None:
    """As years ago: pickles that an index names, vocab.json with merges.txt."""
    import torch

    from foreign_world import write_language_model

    weights = write_language_model(folder, "gpt2").state_dict()
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
    names = sorted(weights)
    files = {f"pytorch_model-{part + 1}.bin": names[part::2] for part in range(2)}
    for file, own in files.items():
        torch.save({name: weights[name] for name in own}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, own in files.items() for name in own}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    letters = ["<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "th", "the", "Ġc"]
    (folder / "vocab.json").write_text(json.dumps({letter: i for i, letter in enumerate(letters)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\nĠ c\n", encoding="utf-8")


def sentencepiece_model(specials: list[tuple[str, int]], kind: int, texts: list[str]) -> bytes:
    """specials: texts and types (2 unknown, 3 control). kind: 1 unigram, 2 BPE."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    words = {part for text in texts for word in text.split() for part in (word, f"▁{word}", *word, "▁")}
    dice = random.Random(1)
    pieces = [{"piece": text, "score": 0.0, "type": sort} for text, sort in specials]
    pieces += [{"piece": text, "score": -dice.uniform(1, 9), "type": 1} for text in sorted(words)]
    normalizing = {"name": "identity", "add_dummy_prefix": True, "remove_extra_whitespaces": kind == 1}
    proto = ModelProto(pieces=pieces, trainer_spec={"model_type": kind}, normalizer_spec=normalizing)
    return bytes(proto.SerializeToString())


def llama_with_sentencepiece(folder: Path) -> None:
    """In several safetensors files that an index names."""
    from foreign_world import write_language_model

    model = write_language_model(folder, "llama")
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    specials = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(specials, 2, TEXTS[:2]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True, "eos_token": "</s>"}))


def write_texts(folder: Path) -> None:
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")


def translator(kind: str) -> Make:
    def make(folder: Path) -> None:
        from foreign_world import write_translator

        write_translator(folder, kind, TEXTS)
        write_texts(folder)

    return make


def t5_with_sentencepiece(folder: Path) -> None:
    translator("t5")(folder)
    (folder / "tokenizer.json").unlink()
    specials = [("<pad>", 3), ("</s>", 3), ("<unk>", 2)]
    (folder / "spiece.model").write_bytes(sentencepiece_model(specials, 1, ["a"]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 2, "eos_token": "</s>"}))


def marian_with_two_sides(folder: Path) -> None:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    translator("marian")(folder)
    (folder / "tokenizer.json").unlink()
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    specials = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    proto = ModelProto()
    proto.ParseFromString(sentencepiece_model(specials, 1, ["the cat"]))
    pieces = [piece.piece for piece in proto.pieces if piece.type == 1][: size - 3]
    places = {text: i for i, text in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(places))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(proto.SerializeToString())
    facts = json.loads((folder / "config.json").read_text())
    facts |= {"pad_token_id": len(places) - 1, "decoder_start_token_id": len(places) - 1}
    (folder / "config.json").write_text(json.dumps(facts))


def encoder(head: str) -> Make:
    def make(folder: Path) -> None:
        from encoder_folders import write_encoder

        write_encoder(folder, head)

    return make


def sentence_encoder(folder: Path) -> None:
    from encoder_folders import declare_pooling

    encoder("Model")(folder)
    declare_pooling(folder, {"pooling_mode_mean_tokens": True}, unit=True, longest=16)


def another_form(name: str, world: str = "checkpoint_world") -> Make:
    def make(folder: Path) -> None:
        getattr(import_module(world), name)(folder)

    return make


ARPA = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.8\t</s>
-0.6\ta\t-0.25
-0.7\tb

\\2-grams:
-0.2\t<s> a\t-0.1
-0.3\ta b
-0.4\tb </s>

\\3-grams:
-0.1\t<s> a b

\\end\\
"""


def arpa(folder: Path) -> None:
    (folder / "model.arpa").write_text(ARPA, encoding="utf-8")


def packed_arpa(folder: Path) -> None:
    (folder / "model.arpa.gz").write_bytes(gzip.compress(ARPA.encode()))


def spelling(folder: Path) -> None:
    random = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"enc_emb": (29, 4), "dec_emb": (74, 4), "fc_w": (74, 8), "fc_b": (74,)}
    for side in ("enc", "dec"):
        shapes |= {f"{side}_w_ih": (24, 4), f"{side}_w_hh": (24, 8), f"{side}_b_ih": (24,), f"{side}_b_hh": (24,)}
    arrays = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    np.savez(folder / "model.npz", **arrays)  # type: ignore[arg-type]


def vectors(name: str) -> Make:
    def make(folder: Path) -> None:
        from headway.text.vectors import WordVectors, write_vectors

        words = sorted({word for text in TEXTS for word in text.split()})
        table_ND = np.random.default_rng(3).standard_normal((len(words), 6)).astype(np.float32)
        write_vectors(folder / name, WordVectors(words, table_ND))

    return make


def glove(folder: Path) -> None:
    """Without a first line of sizes."""
    vectors("words.txt")(folder)
    lines = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    (folder / "words.txt").write_text("\n".join(lines[1:]), encoding="utf-8")


def uses_of_vectors(name: str) -> tuple[tuple[str, ...], ...]:
    return (("vectors", f"PLACE/{name}", "--out", f"{OUT}.txt"), ("neighbours", f"PLACE/{name}", "cat"))


ALL: dict[str, Kind] = {
    "gpt2": Kind(gpt2, (GENERATE, SCORE)),
    "gpt2-old": Kind(old_gpt2, (GENERATE, IMPORT)),
    "llama-chat": Kind(llama_with_template, (CHAT,)),
    "llama-sentencepiece": Kind(llama_with_sentencepiece, (GENERATE,)),
    "marian": Kind(translator("marian"), (TRANSLATE,), ("texts.txt",)),
    "marian-two-sides": Kind(marian_with_two_sides, (TRANSLATE, IMPORT), ("texts.txt",)),
    "t5": Kind(translator("t5"), (TRANSLATE,), ("texts.txt",)),
    "t5-sentencepiece": Kind(t5_with_sentencepiece, (TRANSLATE,), ("texts.txt",)),
    "bert-masked": Kind(encoder("ForMaskedLM"), (FILL,)),
    "bert-labels": Kind(encoder("ForSequenceClassification"), (PREDICT,)),
    "bert-tags": Kind(encoder("ForTokenClassification"), (PREDICT,)),
    "sentences": Kind(sentence_encoder, (EMBED,)),
    "gguf": Kind(another_form("write_gguf_llama"), (("generate", "PLACE/model.gguf", *GENERATE[2:]),)),
    "adapter": Kind(another_form("write_adapter"), (GENERATE,)),
    "meta": Kind(another_form("write_meta_llama"), (GENERATE, IMPORT)),
    "torch": Kind(another_form("write_torch_transformer", "torch_world"), ((*IMPORT, "--heads", "4"),)),
    "arpa": Kind(arpa, (("import", "PLACE/model.arpa", OUT),)),
    "arpa-packed": Kind(packed_arpa, (("import", "PLACE/model.arpa.gz", OUT),)),
    "g2p-en": Kind(spelling, (("import", "PLACE/model.npz", OUT),)),
    "word2vec-binary": Kind(vectors("words.bin"), uses_of_vectors("words.bin")),
    "word2vec-text": Kind(vectors("words.vec"), uses_of_vectors("words.vec")),
    "word2vec-packed": Kind(vectors("words.txt.gz"), uses_of_vectors("words.txt.gz")),
    "glove": Kind(glove, uses_of_vectors("words.txt")),
}
KINDS = drawn(ALL)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("foreign")
    make_all(KINDS, root)
    return root


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_model_of_another_program_is_read_or_named_in_one_line(
    name: str, folders: Path, record_property: Record
) -> None:
    record_property("cases", TIMES * ROUNDS * (len(KINDS[name].uses) if ROUNDS > 1 else 1))
    faults = Attacked(KINDS[name], folders / name).faults(range(TIMES * ROUNDS))
    assert not faults, "\n".join(faults)
