"""Models as folders that `transformers` opens: the same numbers, and a tokenizer with the same ids."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from headway.atomic import replaced_folder
from headway.errors import InputError, refuse
from headway.folder import Card, Loaded, read_model, weights_of
from headway.hub.families import ENCODERS, FOREIGN
from headway.hub.families.exports import export_of
from headway.hub.families.foreign import Foreign
from headway.hub.hf_folder import CONFIG, SAFE, write_json
from headway.hub.names import to_hf


def export_hf(model: str | Path, folder: str | Path) -> str:
    """Write a model for `transformers`; returns the model_type that holds it."""
    loaded = read_model(model)
    foreign, facts, weights = held(loaded)
    export = export_of(loaded.card.family, "Hugging Face")
    with replaced_folder(Path(folder)) as place:
        save_file(weights, place / SAFE, metadata={"format": "pt"})
        write_json(place / CONFIG, facts)
        export.beside(place, loaded, export.layout)
        title = export.layout.title(loaded.card)
        (place / "README.md").write_text(_readme(foreign, loaded.card, title), encoding="utf-8")
    return foreign.model_type


def held(loaded: Loaded) -> tuple[Foreign, dict[str, Any], dict[str, Tensor]]:
    """The first foreign family that holds the model exactly, its config.json and its weights."""
    card, sizes = loaded.card, loaded.card.sizes
    every = [*FOREIGN.values(), *ENCODERS.values()]
    families = [foreign for foreign in every if foreign.family == card.family]
    refuse(not families, f"no Hugging Face family holds a headway {card.family}")
    tokenizers = {id(one.tokenizer) for one in loaded.processors.values() if hasattr(one, "tokenizer")}
    refuse(
        len(tokenizers) > 1,
        "a Hugging Face folder has one tokenizer, this translator two: text.joint=false has no counterpart there",
    )
    export = export_of(card.family, "Hugging Face")
    own = card.config, weights_of(loaded.model)
    reasons = []
    # Most formats hold the model in other words only, some only as it is.
    for foreign, (config, weights) in product(families, (export.restate(*own[:1], sizes, own[1]), own)):
        try:
            facts = foreign.config_out(config, sizes, card.head)
        except InputError as error:
            reasons.append(str(error))
            continue
        fixed = {"model_type": foreign.model_type, "architectures": list(foreign.architectures[:1]), "dtype": "float32"}
        theirs = to_hf(foreign.table(weights, config, sizes, card.head), weights)
        theirs |= foreign.constants(config) if foreign.constants else {}
        # Last what the model says: where positions begin behind the padding's, its id is no tokenizer's to choose.
        return foreign, fixed | export.layout.specials(loaded) | facts, theirs
    raise InputError("; ".join(dict.fromkeys(reasons)))


def _readme(foreign: Foreign, card: Card, title: str) -> str:
    score = "".join(f"- {key}: {value}\n" for key, value in card.score.items())
    return (
        f"# {title}\n\nTrained with headway, exported as `{foreign.model_type}`: `transformers` opens it with "
        f"`AutoTokenizer` and `{foreign.architectures[0]}`.\n" + (f"\nScore:\n\n{score}" if score else "")
    )
