"""The docs' pictures of the page (docs/explore-*.png), by a browser that opens it on named models.

PYTHONPATH=src python benchmarks/page_pictures.py --translator runs/multi30k-de-en --demo demo \\
    --earlier runs/demo-step-350 --language runs/shakespeare-char --recurrent runs/lstm

With --widths, every view of every page at these widths into --out instead, to look for labels that are cut.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import headway
from browsing import Visit, browsing
from headway.explore.asking import Question, answer
from made_pages import written

DOCS = Path(__file__).parent.parent / "docs"
SENTENCE = "ein mann in einem blauen hemd steht auf einer leiter und putzt ein fenster ."
ENGLISH = "The old woman does not like the red cars."
PROMPT = "ROMEO: What light through yonder window breaks"


@dataclass(frozen=True)
class Shot:
    """A picture: of which page, by which link, how high. models: which of the options it shows."""

    name: str
    models: tuple[str, ...]
    link: str
    height: int = 900
    dark: bool = False


SHOTS = (
    Shot("attention", ("translator",), "#view=attention&row=7&column=6", 980),
    Shot("lines", ("translator",), "#view=attention&lines=1&row=6&heads=2.0+2.1+2.2", 860, dark=True),
    Shot("steps", ("translator",), "#view=steps&row=7", 1180),
    Shot("beam", ("translator",), "#view=beam", 900),
    Shot("positions", ("translator",), "#view=positions", 900),
    Shot("compare", ("demo", "earlier"), "#view=compare&words=1", 1180),
    Shot("next", ("language",), "#view=next&temperature=0.8&top-k=12", 720),
    Shot("states", ("recurrent",), "#view=states", 720),
)
TEXTS = {"translator": SENTENCE, "demo": ENGLISH, "earlier": ENGLISH, "language": PROMPT, "recurrent": PROMPT}


def page_of(models: tuple[str, ...], chosen: argparse.Namespace, folder: Path) -> Path:
    """The page of these models on the text of the first."""
    path = folder / f"{'-'.join(models)}.html"
    if not path.exists():
        question = Question(TEXTS[models[0]])
        written(path, *(answer(headway.load(getattr(chosen, name), "cpu"), question) for name in models))
    return path


def taken(browser: Any, page: Path, link: str, path: Path, width: int, height: int, dark: bool = False) -> None:
    """`path`: the picture of the page as a window of this size shows it; `height` 0: the whole page."""
    viewport = {"width": width, "height": height or 900}
    with Visit(browser, page, link, viewport=viewport, color_scheme="dark" if dark else "light") as visit:
        visit.page.wait_for_function("() => document.querySelector('#view figure canvas')?.dataset.drawn")
        visit.page.wait_for_timeout(400)
        visit.page.screenshot(path=path, full_page=not height)
        print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in TEXTS:
        parser.add_argument(f"--{name}", help="a model's folder; without it, its pictures are left as they are")
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--widths", type=int, nargs="*", default=())
    chosen = parser.parse_args()
    shots = [shot for shot in SHOTS if all(getattr(chosen, name) for name in shot.models)]
    with tempfile.TemporaryDirectory() as folder, browsing() as browser:
        for shot in shots:
            page = page_of(shot.models, chosen, Path(folder))
            for width in chosen.widths:
                taken(browser, page, shot.link, chosen.out / f"{shot.name}-{width}.png", width, 0, shot.dark)
            if not chosen.widths:
                taken(browser, page, shot.link, chosen.out / f"explore-{shot.name}.png", 1280, shot.height, shot.dark)


if __name__ == "__main__":
    main()
