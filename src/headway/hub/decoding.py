"""How a target is decoded, by config.json and generation_config.json: start, end, forbidden ids, the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.hf_folder import CONFIG, optional_json
from headway.text.tokenizer import Symbols

GENERATION = "generation_config.json"


def decoding_facts(folder: Path) -> dict[str, Any]:
    """generation_config.json takes precedence over config.json."""
    newer = optional_json(folder / GENERATION)
    return optional_json(folder / CONFIG) | {key: value for key, value in newer.items() if value is not None}


def symbols_in(facts: dict[str, Any], folder: str, size: int, languages: bool = False) -> Symbols:
    """`size`: of the target's vocabulary. `languages`: a target begins with the token of its language."""
    first = facts.get("forced_bos_token_id")
    start, end = facts.get("decoder_start_token_id"), facts.get("eos_token_id")
    start = facts.get("pad_token_id") if start is None else start
    end = end[0] if isinstance(end, list) and end else end
    if not isinstance(start, int) or not isinstance(end, int):
        missing = "decoder_start_token_id" if not isinstance(start, int) else "eos_token_id"
        raise InputError(f"{folder}/{CONFIG} lacks {missing}: a target cannot be decoded without it")
    never = facts.get("bad_words_ids") or []
    if not isinstance(never, list) or any(not isinstance(ids, list) or len(ids) != 1 for ids in never):
        raise InputError(
            f"{folder}: bad_words_ids forbids several ids in a row, headway forbids single ones only: [[7], [8]]"
        )
    if languages and first is None and start in (end, facts.get("pad_token_id"), facts.get("bos_token_id")):
        raise InputError(
            f"{folder} does not say which language it translates to: set forced_bos_token_id in {GENERATION} to the id "
            "of that language's token"
        )
    for i in (start, end, *(ids[0] for ids in never), *([] if first is None else [first])):
        if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < size:
            raise InputError(f"{folder}: a target is decoded with the id {str(i)[:40]}, its vocabulary has {size}")
    return Symbols(start, end, tuple(ids[0] for ids in never), first)


def search_in(facts: dict[str, Any], folder: str) -> dict[str, Any]:
    """`early_stopping`: the search ends once `num_beams` hypotheses have ended."""
    beam, penalty = facts.get("num_beams") or 1, facts.get("length_penalty") or 1.0
    if not isinstance(beam, int) or beam < 1:
        raise InputError(f"{folder}: num_beams is {str(beam)[:40]}, expected a whole number of at least 1")
    refuse(not isinstance(penalty, int | float), f"{folder}: length_penalty is {str(penalty)[:40]}, expected a number")
    return {
        "beam": beam,
        "length_penalty": float(penalty),
        "finish": "full" if facts.get("early_stopping") is True else "bound",
    }
