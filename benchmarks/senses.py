"""One word, many meanings: how "broke" in 24 sentences parts into its three senses, layer by layer, in any models.

Eight sentences a sense: a thing broke, a person is broke, a person broke the news. `nearest` is the share of the 24
vectors whose nearest neighbour is of their own sense (chance: 7 of 23); `within` and `across` are mean cosines. The
models are folders or runs, encoders of any family and language models, called by their folder's name or by NAME=FOLDER.
Draws `results/senses-DEVICE.svg` beside its JSON.

    PYTHONPATH=src python benchmarks/senses.py MiniLM=minilm runs/pretraining/novels-bert runs/tagging/… --device cpu
"""

from __future__ import annotations

from measure import RESULTS, arguments, write

# isort: split
import tempfile
from pathlib import Path
from typing import Any

from panels import Panel, draw

import headway
from headway.explore.analyses import ANALYSES
from headway.explore.analyses.analysis import Traced

BROKE = {
    "harmed": [
        "The vase *broke* when it fell off the shelf.",
        "He *broke* his arm in three places.",
        "The old chair *broke* under his weight.",
        "She dropped the phone and the screen *broke*.",
        "The storm was so strong that the branch *broke*.",
        "A stone hit the window and *broke* the glass.",
        "My bicycle chain *broke* on the way home.",
        "The boy *broke* the plate into small pieces.",
    ],
    "no money": [
        "After the holidays he was completely *broke*.",
        "I am too *broke* to pay the rent this month.",
        "They were *broke* and had to borrow some money.",
        "The company went *broke* and closed its doors.",
        "She lost her job and was soon *broke*.",
        "A *broke* student cannot buy such a car.",
        "He gambled all night and came home *broke*.",
        "We were so *broke* that we ate rice every day.",
    ],
    "told": [
        "The doctor *broke* the bad news to the family.",
        "She *broke* the news of her marriage to her parents.",
        "A local paper first *broke* the story of the scandal.",
        "Nobody knew how he *broke* the news to her.",
        "The reporter who *broke* the story won a prize.",
        "He gently *broke* the sad news to the children.",
        "The story *broke* on television last night.",
        "They *broke* the news to us by telephone.",
    ],
}


def written(file: Path) -> Path:
    """The sentences as `headway analyse --what contexts` reads them."""
    told = (f"{sense}\t{text}\n" for sense, some in BROKE.items() for text in some)
    file.write_text("".join(told), encoding="utf-8")
    return file


def by_layer(name: str, folder: str, device: str) -> list[dict[str, Any]]:
    one = ANALYSES["contexts"]
    with tempfile.TemporaryDirectory() as place:
        file = written(Path(place) / "broke.txt")
        table = one.run(Traced(headway.load(folder, device), one.tensors), [str(file)], one.options())
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [
        {"model": name, "layer": row["layer"]}
        | {key: round(row[key], 4) for key in ("within", "across", "any two", "nearest")}
        for row in rows
    ]


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    def against(key: str) -> dict[str, list[tuple[float, float | None]]]:
        names = dict.fromkeys(row["model"] for row in rows)
        return {name: [(row["layer"], row[key]) for row in rows if row["model"] == name] for name in names}

    layers = sorted({row["layer"] for row in rows})
    draw(
        [
            Panel("whose nearest is of their own sense", against("nearest"), "layer", layers, log_x=False),
            Panel("mean cosine of different senses", against("across"), "layer", layers, log_x=False),
        ],
        path,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a folder, or NAME=FOLDER")
    options = parser.parse_args()
    rows = []
    for given in options.models:
        name, _, folder = given.rpartition("=")
        rows += by_layer(name or Path(folder).name, folder, options.device)
    write(f"senses-{options.device}", options.device, rows, options.out)
    picture(rows, (Path(options.out) if options.out else RESULTS) / f"senses-{options.device}.svg")


if __name__ == "__main__":
    main()
