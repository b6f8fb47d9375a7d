"""headway neighbours"""

from __future__ import annotations

import json

from headway.cli.options import argument, flag, option

SIDE = option(None, "NAME", "Of a translator with two tables: source or target.")


def neighbours(
    table: str = argument("MODEL|FILE", "A text model's folder, or a file of word vectors."),
    words: list[str] = argument("WORD...", "Each by itself; with --minus their sum."),
    minus: list[str] = option([], "WORD...", "Taken off the sum of the words: king woman --minus man."),
    top: int = option(10, "N", "Neighbours of each.", min=1),
    side: str = SIDE,
    as_json: bool = flag("--json", "A JSON object for each word asked for."),
) -> None:
    """The words whose vectors point the same way, by the cosine of the angle between them."""
    from headway.generate.words import open_words

    found = open_words(table, side)
    asked = [words] if minus else [[word] for word in words]
    for some in asked:
        near = found.nearest(some, top, minus)
        if as_json:
            record = {"words": some} | ({"minus": minus} if minus else {})
            record |= {"neighbours": [[word, round(cosine, 4)] for word, cosine in near]}  # type: ignore[misc]
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(" + ".join(some) + "".join(f" − {word}" for word in minus))
            width = max((len(word) for word, _ in near), default=0)
            for word, cosine in near:
                print(f"  {word:<{width}}  {cosine:6.3f}")
