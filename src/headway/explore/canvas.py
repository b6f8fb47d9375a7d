"""What all pictures share: a figure without a window, colours, letters that can be drawn, a file that appears whole.

matplotlib is imported where it is used, and drawn on without pyplot, so no global figure is ever made.
"""

import os
import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
INK, QUIET, HAIRLINE, ACCENT = "#22303c", "#6f7d8a", "#cfd8e0", "#e8772e"
# DejaVu comes with matplotlib; the others fill in its missing scripts where the machine has them.
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "Noto Emoji")
MISSING_LETTER = "○"
# The suffixes of a picture, and what each kind would write of the date or of who made it.
KINDS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}


def new_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def inches(
    figure: "Figure", left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """A rectangle in inches as the fractions of the figure that `add_axes` wants."""
    across, up = figure.get_size_inches()
    return left / across, bottom / up, width / across, height / up


def write(axes: Any, x: float, y: float, text: str, size: float, colour: str = INK, **more: Any) -> None:
    """Text in the coordinates of the axes (or the figure) with every letter drawable and `$` left alone."""
    axes.text(x, y, drawable(text), fontsize=size, color=colour, family=list(families()), parse_math=False, **more)


def save(figure: "Figure", path: Path) -> Path:
    """Written under another name and renamed, so that no reader ever meets half a picture."""
    from matplotlib import rc_context

    kind = path.suffix.lower()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    # Neither the date nor random ids: the same picture is the same file.
    more: dict[str, Any] = {"dpi": DPI, "bbox_inches": "tight", "pad_inches": 0.2, "metadata": {KINDS[kind]: None}}
    try:
        with rc_context({"svg.hashsalt": "headway"}):
            figure.savefig(unfinished, format=kind.lstrip("."), **more)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


@cache
def families() -> tuple[str, ...]:
    """Those of `FONTS` that this machine has."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in FONTS if name in installed)


@cache
def _letters() -> frozenset[int]:
    """The code points that our fonts can draw."""
    from matplotlib.font_manager import findfont, get_font

    return frozenset().union(*(get_font(findfont(name)).get_charmap() for name in families()))


def drawable(text: str) -> str:
    """The text with a circle for every letter that no font has; joiners and variation marks are left out."""
    known = _letters()
    drawn = []
    for letter in text:
        if ord(letter) in known or letter == "\n":
            drawn.append(letter)
        elif unicodedata.category(letter) not in ("Mn", "Cf", "Cc"):
            drawn.append(MISSING_LETTER)
    return "".join(drawn)


def check_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: a picture is written as .png, .svg or .pdf; end its name in one of them")
    if path.is_dir():
        raise InputError(f"{path} is a folder: a picture needs the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no folder '{path.parent}' to write the picture in; make it first")
    return path
