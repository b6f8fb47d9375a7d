"""Model folders and runs of format 1, converted to format 2.

Format 1 had one text or a source and a target instead of processors, and an encoder's head inside its config.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

PAIR = ("source", "target")
HEADS = {"text-labels": "classes", "token-labels": "tags"}


def card_of(facts: dict[str, Any], takes: tuple[str, ...], task: str) -> dict[str, Any]:
    """headway.json of format 1 as one of format 2. `takes`, `task`: the family's own."""
    sizes, text = facts.get("vocabularies"), facts.get("text")
    if not isinstance(sizes, list) or len(sizes) != len(takes) or not isinstance(text, dict):
        return facts  # what is missing is named by the reader
    shared = len(takes) == 1 or text.get("joint", True)
    common = {"name": "text", "options": text, "foreign": facts.get("foreign_text", False)}
    if "symbols" in facts:
        common["symbols"] = facts["symbols"]
    processors = {}
    for name, size in zip(takes, sizes, strict=True):
        file = "tokenizer.json" if shared else f"{name}.tokenizer.json"
        language = facts.get(name, name) if len(takes) == 2 else ""
        processors[name] = common | {"size": size, "language": language, "file": file}
    kept = {key: facts[key] for key in ("family", "search", "score", "run") if key in facts}
    config, head = _parted(facts.get("config"))
    task = {"classes": "classification", "tags": "tagging", "vectors": "embedding"}.get(
        str(head and head["name"]), "masked-words" if head else task
    )
    return kept | {"config": config, "head": head, "task": task, "processors": processors}


def _parted(config: Any) -> tuple[Any, Any]:
    """An encoder's config without its task, and the task as a head."""
    if not isinstance(config, dict) or not isinstance(config.get("task"), dict):
        return config, None
    config = dict(config)
    head = dict(config.pop("task"))
    head["name"] = HEADS.get(str(head.get("name")), head.get("name"))
    if head["name"] in ("words", "words-and-pair"):
        layers = config.get("feed_forward") or {}
        own = "gelu-tanh" if layers.get("approximate") == "tanh" else layers.get("name", "gelu")
        head["activation"] = head.get("activation") or own
        head["epsilon"] = (config.get("norm") or {}).get("epsilon", 1e-12)
    return config, head


def weight_name(name: str) -> str:
    """A weight of an encoder with a head, by its name in format 1."""
    in_head, found = re.subn(r"^task\.(words\.)?", "head.", name)
    return in_head if found else f"encoder.{name}"


def renamed(tensors: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """The tensors of a checkpoint or snapshot under the names that are `wanted`, where they have those of format 1."""
    old = any(name not in tensors for name in wanted)
    return {weight_name(name): tensor for name, tensor in tensors.items()} if old else tensors


def run_of(facts: Any) -> Any:
    """run.json as it is written today: an encoder's head is a part of its own, and the objective says how a model that
    is counted, or that learns word vectors, finds its weights."""
    if not isinstance(facts, dict) or not isinstance(model := facts.get("model"), dict):
        return facts
    facts = dict(facts)
    family = model.get("name")
    if "task" in model:
        facts["model"], facts["head"] = _parted(model)
    data = facts.get("data") or {}
    if family == "ngram":
        facts["objective"] = {"name": "counting"}
    elif family == "skip-gram" and data.get("name") == "plain-text":
        unknown = ("order", "jitter", "apart", "weights")
        facts["data"] = {key: value for key, value in data.items() if key not in unknown} | {"name": "words"}
        facts["objective"] = {"name": "negative-sampling"}
    return facts
