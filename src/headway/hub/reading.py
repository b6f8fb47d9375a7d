"""Hugging Face folders as headway models: config, weights and tokenizer are checked before anything is used."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.card import Card, Loaded
from headway.errors import InputError, Notice
from headway.folder import text_card, with_tokenizers, write_model
from headway.hub import ids
from headway.hub.checkpoint import Checkpoint, opened, opener_of
from headway.hub.decoding import symbols_in
from headway.hub.families import foreign_of
from headway.hub.hf_folder import CONFIG, Weights
from headway.hub.names import Entry, Table, listed
from headway.hub.vocabularies import two_sided
from headway.models import FAMILIES
from headway.models.blank import blank
from headway.processors.text import TextConfig, TextProcessor
from headway.text.foreign import ForeignTokenizer
from headway.text.tokenizer import TextOptions

REMOTE = "hf://"
THREADS = 4


def find_foreign(given: str) -> Path | None:
    """The folder, if it has this format; `hf://owner/name@revision` is downloaded first."""
    if given.startswith(REMOTE):
        from headway.hub.remote import bring

        return bring(given.removeprefix(REMOTE))
    return Path(given) if opener_of(Path(given)) is not None else None


def foreign_card(place: Path) -> Card:
    """The card of a model, from its config."""
    return _card(opened(place))


def _card(found: Checkpoint) -> Card:
    foreign, folder, name = (
        foreign_of(found.facts, found.where),
        found.folder,
        found.where.removesuffix(CONFIG).rstrip("/"),
    )
    try:
        sizes, (config, head) = foreign.vocabularies(found.facts), foreign.model_in(found.facts)
        if foreign.settle is not None and folder is not None:
            config, head = foreign.settle(config, head, folder, found.weights.shapes())
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    more: dict[str, Any] = {}
    if foreign.seq2seq:
        symbols = symbols_in(found.decoding, name, sizes[-1], foreign.languages)
        more = {"symbols": symbols, "search": foreign.search(found.decoding, name)}
    if foreign.processors is not None:
        processors = foreign.processors(folder, config, *sizes[: len(foreign.size_keys) or 1])
        if more:
            processors["text"] = TextConfig(sizes[-1], symbols=more.pop("symbols"), foreign=True)
        task = foreign.task(head) if foreign.task else FAMILIES[foreign.family].task
        return Card(foreign.family, config, task, processors, head, **more)
    text = TextOptions(joint=len(set(sizes)) == 1 if folder is None else not two_sided(folder))
    return text_card(foreign.family, config, sizes, text, foreign=True, head=head, **more)


def read_foreign(folder: Path, device: torch.device, dtype: torch.dtype, call: Any = None) -> Loaded:
    """`call`: how the model was called, where its file does not say it."""
    found = opened(folder, call)
    card = _card(found)
    processors = _processors(found, card)
    try:
        model: nn.Module = blank(card.family, card.config, card.sizes, device, dtype, card.head)
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        raise InputError(f"{found.where} describes a model that cannot be built: {error}") from error
    foreign = foreign_of(found.facts, found.where)
    table = foreign.table(dict(model.named_parameters()), card.config, card.sizes, card.head)
    load_foreign(model, table, found.weights)
    return Loaded(model, card, processors)


def _processors(found: Checkpoint, card: Card) -> dict[str, Any]:
    foreign = foreign_of(found.facts, found.where)
    if foreign.processors is not None:
        reads = dict(card.processors)
        writes = [reads.popitem()] if foreign.seq2seq else []
        opened = {name: config.open(found.folder) for name, config in reads.items()}
        for name, config in writes:
            _, tokenizer = _tokenizers(found, card)
            opened[name] = TextProcessor(config, _fitting(tokenizer, config.size, found.where))
        return opened
    sides = zip(_tokenizers(found, card), (card.sizes[0], card.sizes[-1]), strict=True)
    return with_tokenizers(card, *(_fitting(tokenizer, size, found.where) for tokenizer, size in sides))


def _tokenizers(found: Checkpoint, card: Card) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """Those of the folder; with `--ids` those that take and give ids."""
    if not ids.only:
        return found.tokenizers()
    ends = found.facts.get("eos_token_id")
    stops = tuple(end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int))
    return ids.numbers(card.sizes[0], stops), ids.numbers(card.sizes[-1], stops)


def _fitting(tokenizer: ForeignTokenizer, size: int, folder: str) -> ForeignTokenizer:
    """A tokenizer whose ids the model has rows for; added tokens beyond them are left out."""
    if len(tokenizer) <= size:
        return tokenizer
    shorter = tokenizer.below(size)
    if len(shorter) > size:
        raise InputError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the model {size}")
    told = f"{folder}: the tokenizer has {len(tokenizer) - size} added tokens more than the model has rows: left out"
    warnings.warn(told, Notice, stacklevel=2)
    return shorter


@torch.no_grad()
def load_foreign(model: nn.Module, table: Table, weights: Weights) -> None:
    """Fill every parameter from the files; nothing is touched unless all names and shapes fit."""
    ours = dict(model.named_parameters())
    shapes = weights.shapes()
    name_of = table.resolve(shapes)
    found = {name: shapes[theirs] for name, theirs in name_of.items()}
    table.check(found, ours, str(weights.where))
    if other := table.unknown(found, inside=False):
        told = f"{weights.where} has {listed(other)}: weights of a head that this model does not have, left out"
        warnings.warn(told, Notice, stacklevel=2)

    def get(name: str) -> Tensor:
        return weights.get(name_of[name])

    for copy, first in table.copies.items():  # but a head that is not tied has a weight of that name
        if copy in name_of and copy not in table.theirs and not torch.equal(get(copy), get(first)):
            raise InputError(f"{weights.where}: '{copy}' must equal '{first}', since config.json ties them: it differs")

    @torch.no_grad()  # a new thread has gradients on
    def place(entry: Entry) -> None:
        weight = ours[entry.ours]
        mapped = _as_it_lies(entry, weight, weights, name_of)
        if mapped is not None:
            weight.data = mapped
            return
        entry.fill(weight.data, get)
        weight.data[entry.rows or len(weight) :] = 0

    # Most of the time goes into fresh pages of memory, which several threads get faster.
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(place, table.entries))


def _as_it_lies(entry: Entry, weight: Tensor, weights: Weights, name_of: dict[str, str]) -> Tensor | None:
    """The mapped file itself as the weight, where nothing has to be changed; it is then read when it is used."""
    if weight.device.type != "cpu" or not entry.plain or (len(entry.parts) > 1 and entry.transposed):
        return None
    names = [name_of[part] for part in entry.parts]
    theirs = weights.get(names[0]) if len(names) == 1 else weights.joined(names)
    if theirs is None or theirs.dtype != weight.dtype:
        return None
    theirs = theirs.mT if entry.transposed else theirs
    return theirs if theirs.shape == weight.shape else None


def import_foreign(source: str, folder: str | Path, call: Any = None) -> Loaded:
    """Convert `source` to a headway model folder. `call`: of `read_foreign`."""
    place = find_foreign(source)
    if place is None:
        raise InputError(f"{source} is not a model in the Hugging Face format ({CONFIG} with a model_type is missing)")
    loaded = read_foreign(place, torch.device("cpu"), torch.float32, call)
    weights = {name: weight.detach().contiguous() for name, weight in loaded.model.named_parameters()}
    write_model(Path(folder), weights, loaded.card, loaded.processors)
    return loaded
