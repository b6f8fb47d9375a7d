"""The trained spelling-to-sound model of the Python package g2p-en (Park and Kim 2019): checkpoint20.npz, a GRU that
reads the letters of an English word and one that writes its phonemes, without attention."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headway.data.readers import must_be_there
from headway.errors import InputError, refuse
from headway.folder import text_card, weights_of, with_tokenizers, write_model
from headway.generate.search import Search
from headway.models.recurrent import Gru
from headway.models.rnn_seq2seq import NoAttention, RnnSeq2Seq, RnnSeq2SeqConfig
from headway.plain import to_plain
from headway.text.tokenizer import TextOptions, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")  # with a stress
CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V", "W",
    "Y", "Z", "ZH",
)  # fmt: skip
PHONEMES = sorted([*(f"{vowel}{stress}" for vowel in VOWELS for stress in range(3)), *CONSONANTS, "UW"])
# Their special tokens in headway's order (padding, start, end, unknown): a letter has no start token.
LETTER_ROWS = (0, 0, 2, 1, *range(3, 3 + len(LETTERS)))
PHONEME_ROWS = (0, 2, 3, 1, *range(4, 4 + len(PHONEMES)))
MOST = 20  # phonemes of a word
LONGEST = 512

Arrays = dict[str, npt.NDArray[np.float32]]


def import_g2p(path: str | Path, folder: str | Path) -> None:
    """Make a model folder of the package's file."""
    found = _read(Path(path))
    embedding, width = ((0, *np.shape(found.get(name, ())))[-1] for name in ("enc_emb", "enc_w_hh"))
    _check(found, embedding, width, Path(path))
    config = RnnSeq2SeqConfig(
        Gru(), 1, 1, width, dropout=0.0, embeddings="separate", max_length=LONGEST, attention=NoAttention(),
        direction="forwards", start="copied", embedding=embedding, bias=True,
    )  # fmt: skip
    tokenizers = letters(), phonemes()
    model = RnnSeq2Seq(config, *map(len, tokenizers))
    model.load_state_dict(_named(found, embedding))
    text = TextOptions("char", lowercase=True, joint=False, min_count=1)
    search = Search(beam=1, max_ratio=0.0, max_extra=MOST)
    card = text_card(config.name, config, tuple(map(len, tokenizers)), text, ("letters", "phonemes"),
                     search=to_plain(search))  # fmt: skip
    write_model(Path(folder), weights_of(model), card, with_tokenizers(card, *tokenizers))


def letters() -> Tokenizer:
    return Tokenizer.train(LETTERS, TextOptions("char", lowercase=True, min_count=1))


def phonemes() -> Tokenizer:
    return Tokenizer.of_words(PHONEMES, TextOptions("word", nfc=False, min_count=1))


def _read(path: Path) -> Arrays:
    must_be_there(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no whole .npz of arrays: {error}") from error


def _check(found: Arrays, embedding: int, width: int, path: Path) -> None:
    """Refuse a file that has other arrays, or of other shapes."""
    gates = 3 * width
    shapes = {"enc_emb": (3 + len(LETTERS), embedding), "dec_emb": (4 + len(PHONEMES), embedding)}
    for side in ("enc", "dec"):
        shapes |= {f"{side}_w_ih": (gates, embedding), f"{side}_w_hh": (gates, width)}
        shapes |= {f"{side}_b_ih": (gates,), f"{side}_b_hh": (gates,)}  # type: ignore[dict-item]
    shapes |= {"fc_w": (4 + len(PHONEMES), width), "fc_b": (4 + len(PHONEMES),)}  # type: ignore[dict-item]
    for name, shape in shapes.items():
        refuse(name not in found, f"{path} has no array '{name}': expected checkpoint20.npz of the package g2p-en")
        refuse(found[name].dtype.kind != "f", f"{path}: '{name}' holds {found[name].dtype}, expected float32")
        refuse(found[name].shape != shape, f"{path}: '{name}' has the shape {found[name].shape}, expected {shape}")


def _named(found: Arrays, embedding: int) -> dict[str, Tensor]:
    """Their arrays under headway's names. A table is scaled down here by what an embedding scales it up by."""
    scale = math.sqrt(embedding)
    theirs = {name: torch.from_numpy(np.asarray(array, dtype=np.float32)) for name, array in found.items()}
    named = {
        "embed_source.table.weight": theirs["enc_emb"][list(LETTER_ROWS)] / scale,
        "embed_target.table.weight": theirs["dec_emb"][list(PHONEME_ROWS)] / scale,
        "head.weight": torch.cat([theirs["fc_w"], theirs["fc_b"][:, None]], 1)[list(PHONEME_ROWS)],
    }
    for side, cell in (("enc", "encoder.layers.0.forwards.cell"), ("dec", "decoder.layers.0.cell")):
        for part, ours in (("ih", "from_input"), ("hh", "from_state")):
            named[f"{cell}.{ours}.weight"] = theirs[f"{side}_w_{part}"]
            named[f"{cell}.{ours}.bias"] = theirs[f"{side}_b_{part}"]
    return named
