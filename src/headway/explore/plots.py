"""Plots: heat maps, lines and bars, on a canvas that they share. A caller describes what to draw as data.

matplotlib is imported where it is used, and drawn on without pyplot, so there is no global figure. The same data gives
the same file.

R rows, C columns.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.atomic import replaced
from headway.errors import InputError, refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

DPI = 160
INK, QUIET, HAIRLINE, ACCENT = "#22303c", "#6f7d8a", "#cfd8e0", "#e8772e"
SHADES = ("#f3f6f9", "#d6e4ef", "#a3c5dd", "#649cc4", "#2f6fa3", "#123a63")
# Okabe and Ito (2008), which nearly everyone can distinguish; without their yellow, too light on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))  # once all colours are taken
# DejaVu comes with matplotlib; the others add the scripts that it lacks, where the machine has them.
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "Noto Emoji")
MISSING_LETTER = "○"
UNSEEN = ("Mn", "Cf", "Cc")  # joiners, variation marks
# The suffixes of a picture, and the field in which each format would write the date or the program.
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
DARK = 0.55  # of the shades, from which on letters on them are white
LINES = (6.4, 3.4)  # inches


# Canvas


def check_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a picture is written as .png, .svg or .pdf; end its name in one of them")
    refuse(path.is_dir(), f"{path} is a folder: a picture needs the name of a file")
    refuse(not path.parent.is_dir(), f"{path}: no folder '{path.parent}' to write the picture in; make it first")
    return path


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def inches(figure: Figure, left: float, bottom: float, width: float, height: float) -> Any:
    """A rectangle in inches as fractions of the figure: (left, bottom, width, height)."""
    across, up = figure.get_size_inches()
    return left / across, bottom / up, width / across, height / up


def panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place in inches."""
    return figure.add_axes(inches(figure, left, bottom, width, height))


def write(axes: Any, x: float, y: float, text: str, size: float, colour: str = INK, **more: Any) -> None:
    """Text in the coordinates of the axes (or the figure) with every letter drawable and `$` taken literally."""
    axes.text(x, y, drawable(text), fontsize=size, color=colour, family=list(families()), parse_math=False, **more)


def inch_scale(figure: Figure) -> Any:
    """Inches from the figure's lower left corner; matplotlib's own such scale does not follow a tight crop."""
    from matplotlib.transforms import Affine2D

    across, up = figure.get_size_inches()
    return Affine2D().scale(1 / across, 1 / up) + figure.transFigure


def note(figure: Figure, x: float, y: float, text: str, size: float = 8, colour: str = QUIET, **more: Any) -> None:
    """A short text beside the plots, in inches from the lower left corner."""
    write(figure, x, y, text, size, colour, transform=inch_scale(figure), **more)


def extent(figure: Figure) -> Any:
    """The box, in inches, of all that is drawn so far: slanted words reach out of their axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())


def title(figure: Figure, text: str | None, size: float = 12) -> None:
    """Above all that is drawn so far, in lines no longer than the figure is wide."""
    if text:
        box, letters_an_inch = extent(figure), 144 / size
        wrapped = textwrap.fill(one_line(text), max(40, int(box.width * letters_an_inch)))
        note(figure, box.x0, box.y1 + 0.16, wrapped, size, INK, va="bottom")


def legend(place: Any, names: Sequence[str], styles: Sequence[dict[str, Any]], size: float, **more: Any) -> None:
    from matplotlib.lines import Line2D

    bare: dict[str, Any] = {"frameon": False, "borderaxespad": 0, "borderpad": 0}
    handles = [Line2D([], [], **style) for style in styles]
    made = place.legend(handles, ["·"] * len(names), fontsize=size, **bare, **more)
    # Set afterwards: a legend leaves out names that begin with an underscore, and reads `$` as mathematics.
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set(text=drawable(name), color=INK, family=list(families()), parse_math=False)


def save(figure: Figure, path: str | Path) -> Path:
    """Written under another name and renamed, so that no reader ever finds half a picture."""
    from matplotlib import rc_context

    path = check_path(path)
    suffix = path.suffix.lower()
    # Without date and random ids the same picture is the same file.
    more: dict[str, Any] = {"dpi": DPI, "bbox_inches": "tight", "pad_inches": 0.2, "metadata": {FORMATS[suffix]: None}}
    with replaced(path) as unfinished, rc_context({"svg.hashsalt": "headway"}):
        figure.savefig(unfinished, format=suffix.lstrip("."), **more)
    return path


@cache
def families() -> tuple[str, ...]:
    """Those of `FONTS` that this machine has."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in FONTS if name in installed)


@cache
def _letters() -> frozenset[int]:
    """The code points that our fonts can draw, and that of a line end."""
    from matplotlib.font_manager import findfont, get_font

    return frozenset({ord("\n")}).union(*(get_font(findfont(name)).get_charmap() for name in families()))


def drawable(text: str) -> str:
    """The text with a circle for every letter that no font has; joiners and variation marks are left out."""
    known = _letters()
    shown = (letter for letter in text if ord(letter) in known or unicodedata.category(letter) not in UNSEEN)
    return "".join(letter if ord(letter) in known else MISSING_LETTER for letter in shown)


def one_line(word: str) -> str:
    return " ".join(word.split()) or "␣"


def cut(word: str, longest: int) -> str:
    """A word short enough for its place; white space, which would not show, becomes a mark."""
    word = one_line(word)
    return word if len(word) <= longest else word[: longest - 1] + "…"


def quiet(axes: Axes, grid: Any = "both", below: str = "") -> None:
    """A grid of hairlines and grey numbers, no frame."""
    axes.tick_params(colors=QUIET, labelsize=8, length=0, labelfontfamily=list(families()))
    axes.grid(axis=grid, color=HAIRLINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    if below:
        axes.set_xlabel(below, loc="right", fontsize=8.5, color=QUIET, family=list(families()), labelpad=1)


def plain_numbers(axis: Any, logarithmic: Sequence[float] = ()) -> None:
    """`1,000`, not `1e3`; on a logarithmic axis at these multiples of the powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if logarithmic:
        axis.set_major_locator(LogLocator(subs=logarithmic, numticks=7))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.6g}"))


# Heat maps


@dataclass(frozen=True)
class HeatMap:
    """Values as shades, the first row on top; NaN is left blank.

    high: the darkest (None: the largest of these). best: the (row, column) to outline. rows, columns: their names,
    where they are not 0, 1, 2, …
    """

    title: str
    values_RC: NDArray[Any]
    low: float = 0.0
    high: float | None = None
    colours: tuple[str, ...] = SHADES
    best: tuple[int, int] | None = None
    rows: Sequence[int | str] | None = None
    columns: Sequence[int | str] | None = None


@cache
def shades(colours: tuple[str, ...] = SHADES) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("headway", colours)


def heat(
    axes: Axes, values_RC: NDArray[Any], low: float = 0.0, high: float | None = None,
    colours: tuple[str, ...] = SHADES, line: float | None = 0.7,
) -> None:  # fmt: skip
    """The shades alone, the first row on top. line: between cells; None: an image, since thousands of cells would make
    an SVG too heavy to open."""
    rows, columns = values_RC.shape
    values_RC = np.asarray(values_RC, dtype=np.float64)
    if high is None:
        high = float(np.nanmax(values_RC)) if np.isfinite(values_RC).any() else low
    span: dict[str, Any] = {"cmap": shades(colours), "vmin": low, "vmax": high if high > low else low + 1.0}
    if line is None:
        axes.imshow(values_RC, **span, extent=(0, columns, rows, 0), aspect="auto", interpolation="nearest")
    else:
        axes.pcolormesh(values_RC, **span, edgecolors="white", linewidth=line)
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def label_words(
    axes: Axes, above: Sequence[str], beside: Sequence[str], *, size: float, gap: float, slant: float = 60
) -> None:
    """Names of columns slanted above them, so that long neighbours do not collide; names of rows at left. gap: between
    names and cells, in cells."""
    for column, word in enumerate(above):
        # Slanted text is anchored at its baseline; a little to the right centres its letters on the column.
        x = column + 0.5 + 0.15 * np.sin(np.radians(slant))
        write(axes, x, -gap, cut(word, 24), size, rotation=slant, rotation_mode="anchor", ha="left", va="baseline")
    for row, word in enumerate(beside):
        write(axes, -gap, row + 0.5, cut(word, 24), size, ha="right", va="center_baseline")


def heat_maps(rows: Sequence[Sequence[HeatMap]], path: str | Path, *, heading: str = "") -> Path:
    """Heat maps of heads by layer, beside and below one another."""
    between, above, top = 0.55, 0.72, 0.3  # inches
    sizes = [[_size(one) for one in row] for row in rows]
    across = max(sum(wide + between for wide, _ in row) for row in sizes) - between
    down = sum(max(tall for _, tall in row) + above for row in sizes) - above + top
    figure = new_figure(across, down)
    bottom = down + above - top
    for row, row_sizes in zip(rows, sizes, strict=True):
        tallest, left = max(tall for _, tall in row_sizes), 0.0
        bottom -= tallest + above
        for one, (wide, tall) in zip(row, row_sizes, strict=True):
            _heat_map(panel(figure, left, bottom + tallest - tall, wide, tall), one, first=left == 0)
            left += wide + between
    if heading:
        note(figure, 0, down + 0.1, heading, 11, INK, va="bottom")
    return save(figure, path)


def _size(one: HeatMap) -> tuple[float, float]:
    """Inches: cells of a fixed size, as long as that gives neither a tiny nor a huge plot."""
    rows, columns = one.values_RC.shape
    return float(np.clip(0.24 * columns, 1.25, 2.6)), float(np.clip(0.24 * rows, 0.5, 2.6))


def _heat_map(axes: Axes, one: HeatMap, first: bool) -> None:
    from matplotlib.patches import Rectangle

    values_RC = np.asarray(one.values_RC, dtype=np.float64)
    rows, columns = values_RC.shape
    heat(axes, values_RC, one.low, one.high, one.colours)
    axes.tick_params(colors=QUIET, labelsize=6.5, length=0, pad=2)
    for axis, count, names in ((axes.xaxis, columns, one.columns), (axes.yaxis, rows, one.rows)):
        shown = range(0, count, -(-count // 12))
        axis.set_ticks([at + 0.5 for at in shown], [str(names[at] if names else at) for at in shown])
    if values_RC.size <= 64:  # few enough for each to have its number
        low, high = axes.collections[0].get_clim()
        size = min(6.5, 22 * _size(one)[0] / columns)  # room for four signs
        for (row, column), value in np.ndenumerate(values_RC):
            if np.isfinite(value):
                dark = ((value - low) / (high - low) > DARK) != (one.colours == SHADES[::-1])
                colour = "white" if dark else INK
                write(axes, column + 0.5, row + 0.52, _short(float(value)), size, colour, ha="center",
                      va="center_baseline")  # fmt: skip
    if one.best is not None:
        style: dict[str, Any] = {"fill": False, "edgecolor": ACCENT, "linewidth": 1.6, "zorder": 3, "clip_on": False}
        axes.add_patch(Rectangle(one.best[::-1], 1, 1, **style))
    axes.set_title(one.title, fontsize=8.5, color=INK, loc="left", pad=5)
    axes.set_ylabel("layer" if first else "", fontsize=7.5, color=QUIET, labelpad=2)
    axes.set_xlabel("head", fontsize=7.5, color=QUIET, labelpad=1)


def _short(value: float) -> str:
    """`.42`, `3.1`, `12`."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".")
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


# Lines

Points = Sequence[tuple[float, float | None]]


def style_of(number: int) -> dict[str, Any]:
    """The colour and the dash of the nth line."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def lines(
    axes: Axes, curves: Mapping[str, Points], names_of_x: Mapping[int, str], styles: Sequence[dict[str, Any]] = ()
) -> None:
    """Lines over whole numbers with a dot at each value, and each line's name at its end."""
    low, high = np.inf, -np.inf
    for number, points in enumerate(curves.values()):
        x, y = np.array([(x, np.nan if y is None else y) for x, y in points], dtype=np.float64).T
        style = styles[number] if styles else style_of(number)
        axes.plot(x, y, linewidth=1.8, marker="o", markersize=4, **style)
        low, high = min(low, x.min()), max(high, x.max())
    numbers = [at for at in range(int(low), int(high) + 1) if at not in names_of_x]
    shown = [*numbers[:: -(-len(numbers) // 12) or 1], *(at for at in names_of_x if low <= at <= high)]
    axes.set_xticks(shown, [names_of_x.get(at, str(at)) for at in shown])


def name_ends(axes: Axes, names: Sequence[str], height: float) -> None:
    """Names beside the ends of the lines, moved apart where they would touch. height: of the axes, in inches."""
    ends: list[tuple[float, float, str, Any]] = []
    for name, line in zip(names, axes.get_lines(), strict=True):
        x, y = np.asarray(line.get_xdata(), np.float64), np.asarray(line.get_ydata(), np.float64)
        if np.isfinite(y).any():
            last = np.flatnonzero(np.isfinite(y))[-1]
            ends.append((float(y[last]), float(x[last]), name, line.get_color()))
    bottom, top = axes.get_ylim()
    inch, lowest = (top - bottom) / height, -math.inf
    for at, end, name, colour in sorted(ends):
        lowest = max(at, lowest + 0.2 * inch)
        beside = (8, (lowest - at) / inch * 72)  # points
        axes.annotate(name, (end, at), beside, textcoords="offset points", fontsize=9, color=colour, va="center",
                      parse_math=False)  # fmt: skip


def lines_picture(
    curves: Mapping[str, Points], path: str | Path, *, heading: str, value: str, from_zero: bool = True,
    names_of_x: Mapping[int, str] | None = None, below: str = "layer",
) -> Path:  # fmt: skip
    """One plot of lines over whole numbers, `below` says which. `names_of_x`: places that have a name instead."""
    figure = new_figure(*LINES)
    axes = figure.add_axes((0, 0, 1, 1))
    lines(axes, curves, names_of_x or {})
    quiet(axes, below=below)
    if from_zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    name_ends(axes, list(curves), LINES[1])
    write(axes, 0, 1.03, value, 9, QUIET, transform=axes.transAxes)
    write(axes, 0, 1 + 0.32 / LINES[1], heading, 11, va="bottom", transform=axes.transAxes)
    return save(figure, path)


# Bars


@dataclass(frozen=True)
class Bar:
    """A row of a horizontal plot: a line from `low` to `high`, dots on it (x, colour, filled), and a text behind it."""

    name: str
    low: float
    high: float
    colour: str = QUIET
    thick: float = 3.0
    dots: tuple[tuple[float, str, bool], ...] = ()
    text: str = ""


def bars(axes: Axes, rows: Sequence[Bar], size: float = 9.0) -> None:
    """A bar a row, the first on top, its name at left."""
    for at, bar in enumerate(rows):
        axes.plot([bar.low, bar.high], [at, at], color=bar.colour, linewidth=bar.thick, solid_capstyle="butt", zorder=1)
        for x, colour, filled in bar.dots:
            axes.plot(x, at, "o", markersize=5.5, color=colour, markerfacecolor=colour if filled else "white", zorder=2)
        write(axes, bar.high, at, bar.text, 8.5, va="center")
        write(axes, -0.02, at, bar.name, size, ha="right", va="center", transform=axes.get_yaxis_transform())
    axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=[])
