"""Texts that are JSON, and JSON that a schema allows: what may come next, token by token, by the library llguidance."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from headway.errors import InputError
from headway.extras import wanted
from headway.text.codec import Codec

ANY = {"type": "object"}
# As programs write it. Where any space may stand, a model that has nothing to say writes spaces until its room is full.
SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class JsonText:
    """A `Constraint`: one JSON value that the schema allows, and then the end of the text."""

    def __init__(self, tokenizer: Codec, vocabulary: int, schema: Any = None) -> None:
        """`vocabulary`: of the model, which may have more entries than the tokenizer. schema: None is any object."""
        library = wanted("llguidance", "schemas")
        self._matcher, self._tokens = library.LLMatcher, _tokens(tokenizer, vocabulary)
        try:
            text = json.dumps(ANY if schema is None else schema)
            self._grammar = self._matcher.grammar_from_json_schema(text, defaults=SPACES)
        except ValueError as error:
            raise InputError(f"the schema cannot be used: {_line(error)}") from error
        if wrong := self._matcher.validate_grammar(self._grammar, self._tokens):
            raise InputError(f"the schema cannot be used: {_line(wrong)}")

    def start(self) -> Any:
        return self._matcher(self._tokens, self._grammar)

    def allowed(self, state: Any) -> list[int]:
        """None where the value is complete and the vocabulary has nothing that ends a text."""
        if state.is_stopped() or state.is_error():
            return []
        bits = np.unpackbits(np.frombuffer(state.compute_bitmask(), np.uint8), bitorder="little")
        found: list[int] = np.nonzero(bits)[0].tolist()
        return found

    def advance(self, state: Any, token: int) -> Any:
        state.consume_token(token)
        return state


class _ByContent:
    """A tokenizer as a key: two that are the same share what is made of them."""

    def __init__(self, tokenizer: Codec) -> None:
        self.tokenizer, self.content = tokenizer, tokenizer.fingerprint

    def __hash__(self) -> int:
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and other.content == self.content


def _tokens(tokenizer: Codec, vocabulary: int) -> Any:
    return _table(_ByContent(tokenizer), vocabulary)


@lru_cache(maxsize=8)
def _table(own: _ByContent, vocabulary: int) -> Any:
    tokenizer = own.tokenizer
    ends = [i for i in (tokenizer.end, *sorted(tokenizer.stops)) if i is not None and i in tokenizer.stops]
    try:
        return wanted("llguidance", "schemas").LLTokenizer(
            tokenizer.inner.to_str(), n_vocab=vocabulary, eos_token=ends[0] if ends else None
        )
    except ValueError as error:
        raise InputError(f"this model's tokenizer cannot be held to a schema: {_line(error)}") from error


def _line(error: object) -> str:
    return " ".join(str(error).split())[:300]
