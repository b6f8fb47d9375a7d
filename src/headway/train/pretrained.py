"""What a run starts from: nothing, an earlier model, or word vectors of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from headway.errors import InputError
from headway.folder import WEIGHTS, Loaded, find_model, load_weights, read_model
from headway.models.tables import token_tables
from headway.text.tokenizer import SPECIALS, Tokenizer
from headway.text.vectors import WordVectors, read_vectors
from headway.train.run import Run

Say = Callable[[str], None]


def starts_from_vectors(run: Run) -> bool:
    """Whether `init` is a file: a model is a folder."""
    return bool(run.init) and Path(run.init).is_file()


def earlier_model(run: Run) -> Loaded | None:
    return read_model(run.init) if run.init and not starts_from_vectors(run) else None


def fill_from_model(model: nn.Module, init: str) -> None:
    """All weights as they are in an earlier model, of whatever format; one that does not fit is named."""
    place = find_model(init)
    if (place / WEIGHTS).is_file() and (place / "headway.json").is_file():
        load_weights(model, place / WEIGHTS)
        return
    found, wanted = dict(read_model(init).model.named_parameters()), dict(model.named_parameters())
    for name, weight in wanted.items():
        if name not in found or found[name].shape != weight.shape:
            there = f"has it as {list(found[name].shape)}" if name in found else "lacks it"
            raise InputError(f"the model to train has a weight '{name}' {list(weight.shape)}: {init} {there}")
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(found[name])


def fill_from_vectors(model: nn.Module, tokenizers: Sequence[Tokenizer], path: Path, say: Say) -> None:
    """The rows of a model's embedding whose words the file has, as they are there; the others stay as they were drawn.

    A word that the file has only in lower case is taken from there.
    """
    if any(tokenizer.kind == "bpe" for tokenizer in tokenizers):
        raise InputError(f"{path} has vectors of words, the vocabulary has pieces of them: set data.text.kind=word")
    tables = token_tables(model)
    if not tables:
        raise InputError(f"{path}: the model has no table of vectors to fill")
    width = next(iter(tables.values())).embedding_dim
    vectors = read_vectors(path, width=width)
    found = [_fill(table, tok, vectors) for table, tok in zip(tables.values(), tokenizers, strict=False)]
    words = sum(len(tok) - len(SPECIALS) for _, tok in zip(found, tokenizers, strict=False))
    if not sum(found):
        raise InputError(f"{path} has none of the {words:,} words of the vocabulary: is it of another language?")
    say(f"{sum(found):,} of {words:,} words start from {path}")


def _fill(table: nn.Embedding, tokenizer: Tokenizer, vectors: WordVectors) -> int:
    """How many rows were filled."""
    rows: dict[int, int] = {}
    for entry in range(len(SPECIALS), len(tokenizer)):
        word = str(tokenizer.inner.id_to_token(entry))
        row = vectors.row_of.get(word, vectors.row_of.get(word.lower()))
        if row is not None:
            rows[entry] = row
    with torch.no_grad():
        table.weight[list(rows)] = torch.from_numpy(vectors.table_ND[list(rows.values())]).to(table.weight)
    return len(rows)
