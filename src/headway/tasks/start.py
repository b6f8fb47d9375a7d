"""What a run starts with: where it works, and its first weights: random ones, an earlier model's, or word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headway.card import Loaded
from headway.errors import InputError, refuse
from headway.folder import read_model
from headway.models import build
from headway.models.configs import token_tables
from headway.nn.weights import kept_tensors
from headway.random_states import process_seed
from headway.text.tokenizer import SPECIALS, Tokenizer
from headway.text.vectors import read_vectors

Say = Callable[[str], None]


@dataclass(frozen=True)
class RunContext:
    """Where a run works. `resumed`: vocabularies and held-out text are in the folder already. `ranks`: this process
    among several (`headway.train.parallel.ranks`). `log`: a `headway.train.log.Log`."""

    out: Path
    log: Any
    device: torch.device
    dtype: torch.dtype
    ranks: Any
    download: bool = False
    resumed: bool = False


def starts_from_vectors(run: Any) -> bool:
    """Whether `init` is a file: a model is a folder."""
    return bool(run.init) and Path(run.init).is_file()


def earlier_model(run: Any) -> Loaded | None:
    return read_model(run.init) if run.init and not starts_from_vectors(run) else None


def first_model(
    run: Any, context: RunContext, sizes: Sequence[int], tokenizers: Sequence[Any], head: Any = None,
    earlier: Loaded | None = None,
) -> Any:  # fmt: skip
    """The model at its start, the same in every process; then the random generator of each process has its own seed.

    `tokenizers`: of the vocabularies, for a file of word vectors to start from. `earlier`: the model to start from; of
    an encoder with another head the new head stays as drawn."""
    torch.manual_seed(run.engine.seed)
    model = build(run.model.name, run.model, sizes, head)
    run.engine.parametrisation.check(model, run, earlier)
    if earlier is None:
        run.engine.parametrisation.begin(model)
    if starts_from_vectors(run):
        fill_from_vectors(model, tokenizers, Path(run.init), context.log.say)
    elif earlier is not None:
        new = take_over(model, earlier, run.init, head)
        if head is not None:
            context.log.say(f"weights of {run.init}" + (f"; new: {', '.join(new)}" if new else ""))
    if context.ranks.count > 1:
        torch.manual_seed(process_seed(run.engine.seed, context.ranks.rank))
    return model.to(context.device, context.dtype)


@torch.no_grad()
def take_over(model: nn.Module, earlier: Loaded, where: str, head: Any = None) -> list[str]:
    """Copy the weights of an earlier model; one that does not fit is an error. Of a different head only those that
    both share are copied. Returns the names of the weights that stay new."""
    found, wanted = kept_tensors(earlier.model), kept_tensors(model)
    if head is not None:
        found = model.fit(found, earlier.card.config)  # type: ignore[operator]
    other = head is not None and earlier.card.head != head
    if other:
        found = {name: tensor for name, tensor in found.items() if name.startswith(("encoder.", *head.shared))}
    for name, weight in wanted.items():
        if name not in found and other and name.startswith("head."):
            continue
        if name not in found or found[name].shape != weight.shape:
            there = f"has it as {list(found[name].shape)}" if name in found else "lacks it"
            raise InputError(f"the weight '{name}' has shape {list(weight.shape)}, {where} {there}: keep its sizes")
        weight.copy_(found[name])
    return [name for name in wanted if name not in found]


@torch.no_grad()
def fill_from_vectors(model: nn.Module, tokenizers: Sequence[Tokenizer], path: Path, say: Say) -> None:
    """Fill the rows of a model's embedding whose words the file has; the others stay random.

    A word that the file has only in lower case is taken from there.
    """
    if any(tokenizer.kind == "bpe" for tokenizer in tokenizers):
        raise InputError(f"{path} has vectors of words, the vocabulary has parts of words: set data.text.kind=word")
    tables = token_tables(model)
    refuse(not tables, f"{path}: the model has no table of vectors to fill")
    vectors = read_vectors(path, width=next(iter(tables.values())).embedding_dim)
    filled = words = 0
    for table, tokenizer in zip(tables.values(), cycle(tokenizers), strict=False):
        entries = range(len(SPECIALS), len(tokenizer))
        word_of = {entry: str(tokenizer.inner.id_to_token(entry)) for entry in entries}
        row_of = {entry: vectors.row_of.get(word, vectors.row_of.get(word.lower())) for entry, word in word_of.items()}
        rows = {entry: row for entry, row in row_of.items() if row is not None}
        table.weight[list(rows)] = torch.from_numpy(vectors.table_ND[list(rows.values())]).to(table.weight)
        filled, words = filled + len(rows), words + len(tokenizer) - len(SPECIALS)
    refuse(not filled, f"{path} has none of the {words:,} words of the vocabulary: is it of another language?")
    say(f"{filled:,} of {words:,} words start from {path}")
