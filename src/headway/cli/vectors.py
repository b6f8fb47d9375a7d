"""headway vectors"""

from __future__ import annotations

import typer

from headway.cli.neighbours import SIDE


def vectors(
    table: str = typer.Argument(
        metavar="MODEL|FILE", help="A text model's folder, or a file of word vectors to write in another form."
    ),
    out: str = typer.Option(
        ..., metavar="FILE", help="word2vec's forms: .txt or .vec (text), .bin (binary), or .gz of these."
    ),
    side: str = SIDE,
) -> None:
    """Write a model's embedding as a file of word vectors."""
    from headway.explore.words import open_words
    from headway.text.vectors import check_name, write_vectors

    check_name(out)
    found = open_words(table, side).vectors
    write_vectors(out, found)
    print(f"{len(found):,} vectors of width {found.width}: {out}")
