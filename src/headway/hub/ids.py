"""`--ids`: ids of tokens in place of text, for a model without a tokenizer. A text is numbers: `12 7 300`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tokenizers
from tokenizers import models, pre_tokenizers

from headway.text.foreign import ForeignTokenizer, Settings

only = False  # `--ids`


@contextmanager
def ids_only() -> Iterator[None]:
    """Models of other programs take and give ids, whether they have a tokenizer or not."""
    global only
    before, only = only, True
    try:
        yield
    finally:
        only = before


def numbers(size: int, stops: tuple[int, ...] = ()) -> ForeignTokenizer:
    """A tokenizer whose tokens are the numbers below `size`, each its own id. Anything else in a text is refused."""
    inner = tokenizers.Tokenizer(models.WordLevel({str(id): id for id in range(size)}, unk_token="no id"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return ForeignTokenizer(inner, Settings(stops=stops))
