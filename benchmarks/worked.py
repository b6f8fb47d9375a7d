"""The numbers and pictures of docs/worked.md and its pages: the decks' explanations, worked with real models.

A translator (the demo's), an encoder (all-MiniLM-L6-v2) and a GPT that headway has trained. Writes
`results/worked-cpu.json` and `docs/worked-*.png`; `table.py` then makes the tables.

    PYTHONPATH=src python benchmarks/worked.py DEMO MINILM GPT --device cpu
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
from pathlib import Path

import torch
from worked_heads import CHOICES, alignment_rows, it_rows
from worked_order import mask_rows, order_rows, position_rows, sentence_rows
from worked_roles import SENTENCES, TESTED, roles_rows
from worked_steps import elsewhere_rows, steps_rows, variance_rows

import headway

DOCS = Path(__file__).parent.parent / "docs"
SAW = "Yesterday I went to the garden and saw a dog"
OTHERS = (
    "Yesterday he went to the garden and saw a dog",
    "Yesterday Mary went to the garden and saw a dog",
    "The old man told me that he saw a dog",
    "The old man told us that he saw a dog",
)
SEEN_BY = 4, 2  # layer and head of the GPT that is worked through
PRONOUN_HEAD = 3, 1  # of MiniLM: right most often on GAP (docs/looking.md)


def main() -> None:
    parser = arguments(__doc__)
    for model in ("demo", "minilm", "gpt"):
        parser.add_argument(model)
    parser.add_argument("--pictures", type=Path, default=DOCS)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    demo, minilm, gpt = (headway.load(folder, options.device) for folder in (options.demo, options.minilm, options.gpt))

    def picture(name: str) -> Path:
        return Path(options.pictures / f"worked-{name}.png")

    texts = [choice.sentence(which) for choice in CHOICES for which in (0, 1)]
    rows = [
        *steps_rows(gpt, SAW, "saw", *SEEN_BY, picture("steps")),
        *elsewhere_rows(gpt, (SAW, *OTHERS), "saw", *SEEN_BY),
        *mask_rows(picture("masks")),
        *position_rows(minilm, picture("positions"), picture("biases")),
        *variance_rows({"GPT": (gpt, "decoder"), "MiniLM": (minilm, "encoder")}, texts, picture("variance")),
        *order_rows(),
        *sentence_rows(minilm),
        *alignment_rows(demo, picture("alignment")),
        *it_rows({"MiniLM": minilm, "GPT": gpt}, PRONOUN_HEAD, picture("it")),
        *roles_rows(options.steps, options.seeds, picture("roles")),
    ]
    case = {"sentences_for_roles": SENTENCES - TESTED, "steps": options.steps, "seeds": options.seeds}
    write(f"worked-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
