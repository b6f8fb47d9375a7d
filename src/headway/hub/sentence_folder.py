"""sentence-transformers folders: how the vector of a text is pooled from those of its tokens."""

from __future__ import annotations

from pathlib import Path

from headway.errors import InputError, refuse
from headway.hub.hf_folder import optional_json
from headway.models.heads import Vectors
from headway.nn.pooling import Pooling
from headway.outside import read_list, read_object

POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt",
}
NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "first", "max": "max", "mean_sqrt_len_tokens": "mean-sqrt"}
PROMPTS = "config_sentence_transformers.json"
# Keys of a pooling that do not change the result.
SIZES = ("word_embedding_dimension", "embedding_dimension")


def declared_vectors(folder: Path) -> Vectors:
    """From modules.json: a model, a pooling, optionally a normalization to length 1. Without that file: nothing."""
    path = folder / "modules.json"
    if not path.is_file():
        return Vectors()
    try:
        modules = read_list(path)
        steps = [(str(module["type"]).rsplit(".", 1)[-1], folder / str(module["path"])) for module in modules]
    except (TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path} is not a list of modules with their type and path: {error}") from error
    pooling, unit = None, False
    for number, (kind, place) in enumerate(steps):
        if kind == "Pooling" and pooling is None:
            pooling = _pooling(place / "config.json")
        elif kind == "Normalize" and pooling is not None:
            unit = True
        elif kind != "Transformer" or number:
            raise InputError(f"{path}: headway has no step '{kind}' here, only Transformer, Pooling, Normalize")
    longest, prompt = _longest(folder / "sentence_bert_config.json"), _prompt(folder / PROMPTS)
    return Vectors(pooling=pooling, unit=unit, longest=longest, prompt=prompt)


def _pooling(path: Path) -> Pooling:
    facts = read_object(path)
    if "pooling_mode" in facts:  # the key of newer folders
        name = str(facts["pooling_mode"])
        refuse(name not in NAMES, f"{path}: headway has no pooling '{name[:40]}': choose one of {', '.join(NAMES)}")
        return NAMES[name]
    chosen = [key for key, value in facts.items() if key.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        listed = ", ".join(chosen) or "nothing"
        raise InputError(f"{path} asks for {listed}: headway pools by one of {', '.join(POOLINGS)}")
    unknown = [key for key in facts if not key.startswith("pooling_mode_") and key not in (*SIZES, "include_prompt")]
    if unknown or not facts.get("include_prompt", True):
        raise InputError(f"{path}: headway does not support '{(*unknown, 'include_prompt')[0]}'")
    return POOLINGS[chosen[0]]


def _longest(path: Path) -> int:
    """The most tokens of a text, where the folder has a lower limit than the model; 0: none."""
    facts = optional_json(path)
    if facts.get("do_lower_case"):
        raise InputError(f"{path}: do_lower_case changes the text before its tokenizer does; headway does not")
    longest = facts.get("max_seq_length")
    return longest if isinstance(longest, int) else 0


def _prompt(path: Path) -> str:
    """What is put before every text unless another prompt is asked for; mostly nothing."""
    facts = optional_json(path)
    name, prompts = facts.get("default_prompt_name"), facts.get("prompts") or {}
    if name is None:
        return ""
    found = prompts.get(name) if isinstance(name, str) and isinstance(prompts, dict) else None
    if not isinstance(found, str):
        raise InputError(f"{path}: default_prompt_name is {str(name)[:40]!r}, which is none of its prompts")
    return found
