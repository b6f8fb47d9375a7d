"""headway vectors"""

from __future__ import annotations

from pathlib import Path

from headway.cli.neighbours import SIDE
from headway.cli.options import argument, flag, option
from headway.errors import refuse


def vectors(
    table: str = argument("MODEL|FILE", "A text model's folder, or a file of word vectors to write in another form."),
    out: str = option(..., "FILE", "word2vec's forms: .txt or .vec (text), .bin (binary), or .gz of these."),
    side: str = SIDE,
    overwrite: bool = flag("--overwrite", "Replace the file if it is there."),
) -> None:
    """Write a model's embedding as a file of word vectors."""
    from headway.generate.words import open_words
    from headway.text.vectors import check_name, write_vectors

    check_name(out)
    refuse(Path(out).exists() and not overwrite, f"{out} is there already: choose another name, or pass --overwrite")
    found = open_words(table, side).vectors
    write_vectors(out, found)
    print(f"{len(found):,} vectors of width {found.width}: {out}")
