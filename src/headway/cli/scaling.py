"""headway scaling"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import options
from headway.cli.options import argument, flag, option
from headway.errors import refuse

if TYPE_CHECKING:
    from headway.evaluate.scaling import Law, Trained
    from headway.train.ladder import Rung

PASSES = 4  # over the text, from which on repeated tokens are worth less (Muennighoff et al. 2023)


def scaling(
    recipe: str = argument("RECIPE", "A language model's recipe, such as gpt."),
    data: list[str] = option([], "FILE...", "The text."),
    valid: list[str] = option([], "FILE...", "The text that the loss is measured on; without it some is held out."),
    out: str = option("runs/scaling", "FOLDER", "Where the runs lie; the same command resumes them."),
    operations: float = option(1e14, "X", "The most floating-point operations of a small run."),
    predict: float = option(None, "X", "Predict the loss of a run of so many operations (default: a thousand times)."),
    check: bool = flag("--check", "Train that run too, and compare."),
    batch_size: int = option(None, "N", "Tokens of a batch.", min=1),
    settings: list[str] = option([], "KEY=VALUE...", "More settings of every run.", "--set"),
    dry_run: bool = flag("--dry-run", "Show the runs and what they cost; train nothing."),
    as_json: bool = flag("--json", "The result as JSON."),
    device: str = options.DEVICE,
) -> None:
    """Train small runs, fit how the loss falls with weights and tokens, and predict a large run."""
    from headway.cli.train import resolve
    from headway.evaluate.scaling import bootstrapped, fitted
    from headway.tasks.files import look_for_own
    from headway.train.ladder import rung_of, rungs

    files = {"train": tuple(data), "valid": tuple(valid)}
    more = [*settings, *([f"engine.batch={batch_size}"] if batch_size else [])]
    run = resolve(recipe, {part: names for part, names in files.items() if names}, None, None, more)
    look_for_own(run)
    large = predict or 1000 * operations
    refuse(large <= operations, f"--predict {large:g} is no larger than the small runs (--operations {operations:g})")
    ladder = rungs(run, operations)
    if dry_run:
        _show(ladder, rung_of(run, (large / 120) ** 0.5, large), large)
        return

    def trained(rung: Rung) -> Trained:
        return _trained(recipe, rung, Path(out), {"data": data, "valid": valid, "settings": more, "device": device})

    points = [trained(rung) for rung in ladder]
    law = fitted(points)
    best = law.best(large)[0]
    if best < max(point.weights for point in points):
        why = "by this law the best large run is smaller than the small ones: it is not to be trusted"
        refuse(check, f"{why}, and --check would train it for nothing. Give more --operations")
        print(f"headway: {why}. Give more --operations", file=sys.stderr)
    rung = rung_of(run, best, large)
    low, high = bootstrapped(points, lambda one: one.loss(rung.shape.weights, rung.tokens))
    found: dict[str, Any] = {
        "law": law.to_dict(), "runs": [vars(point) for point in points],
        "predicted": {"operations": large, "weights": rung.shape.weights, "tokens": rung.tokens,
                      "loss": law.loss(rung.shape.weights, rung.tokens), "interval": [low, high]},
    }  # fmt: skip
    if check:
        found["reached"] = trained(rung).loss
        found["apart"] = found["predicted"]["loss"] / found["reached"] - 1
    place = Path(out)
    (place / "scaling.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    picture = _drawn(points, law, found, place / "scaling.png")
    if as_json:
        print(json.dumps(found))
        return
    for line in _told(law, found):
        print(line)
    print(f"picture: {picture}")


def _show(ladder: list[Rung], last: Rung, large: float) -> None:
    print(f"{'layers × width':<16}{'weights':>12}{'tokens':>14}{'steps':>9}{'operations':>13}{'rate':>9}")
    for rung in [*ladder, last]:
        shape = f"{rung.shape.layers} × {rung.shape.width}"
        size = f"{rung.shape.weights:>12,}{rung.tokens:>14,}{rung.steps:>9,}"
        print(f"{shape:<16}{size}{rung.operations:>13.3g}{rung.peak:>9.2g}")
    total = sum(rung.operations for rung in ladder)
    told = f"{len(ladder)} runs, {total:.3g} operations in all"
    print(f"{told}; the last row is about the run that is predicted ({large:.3g})")


def _trained(recipe: str, rung: Rung, out: Path, how: dict[str, Any]) -> Trained:
    """The run in a folder of its own, or what it came to before."""
    from headway.evaluate.scaling import Trained
    from headway.folder import find_model, read_card
    from headway.training import train

    place = out / rung.name
    if not (place / "model" / "headway.json").is_file():
        print(f"headway: {rung.name}: {rung.shape.weights:,} weights, {rung.tokens:,} tokens", file=sys.stderr)
        own = [f"{key}={value}" for key, value in rung.settings.items()]
        train(recipe, **how | {"settings": [*own, *how["settings"], *rung.more]}, out=place)
    score = read_card(find_model(place)).score
    if (passes := float(score.get("epochs", 0))) > PASSES:
        print(f"headway: {rung.name} read its text {passes:.0f} times: the law is of new tokens, give more text",
              file=sys.stderr)  # fmt: skip
    return Trained(rung.shape.weights, rung.tokens, float(score["validation loss"]))


def _told(law: Law, found: dict[str, Any]) -> list[str]:
    told, (low, high) = found["predicted"], found["predicted"]["interval"]
    lines = [
        f"L = {law.e:.3f} + {law.a:.4g} / N^{law.alpha:.3f} + {law.b:.4g} / D^{law.beta:.3f}",
        f"{told['operations']:.3g} operations: best with {told['weights']:,} weights and {told['tokens']:,} tokens",
        f"predicted loss {told['loss']:.4f} nats a token (90 % of resampled laws: {low:.4f} to {high:.4f})",
    ]
    if "reached" in found:
        lines.append(f"reached {found['reached']:.4f}: the prediction is {100 * found['apart']:+.2f} % off")
    return lines


def _drawn(points: list[Trained], law: Law, found: dict[str, Any], path: Path) -> Path:
    """Loss against operations: the runs, the law's best for each number of operations, and the large run."""
    import numpy as np

    from headway.explore.plots import COLOURS, QUIET, inches, new_figure, save

    figure = new_figure(6.4, 4.2)
    axes = figure.add_axes(inches(figure, 0.8, 0.65, 5.3, 3.3))
    told = found["predicted"]
    across = np.logspace(np.log10(min(p.operations for p in points)) - 0.2, np.log10(told["operations"]) + 0.2, 60)
    axes.plot(across, [law.loss(*law.best(x)) for x in across], color=QUIET, label="the law at its best share")
    for number, weights in enumerate(sorted({p.weights for p in points})):
        some = [p for p in points if p.weights == weights]
        axes.scatter([p.operations for p in some], [p.loss for p in some], s=22, color=COLOURS[number % len(COLOURS)],
                     alpha=0.8)  # fmt: skip
    axes.scatter([told["operations"]], [told["loss"]], marker="x", s=60, color=COLOURS[1], label="predicted")
    if "reached" in found:
        axes.scatter([told["operations"]], [found["reached"]], marker="o", s=40, facecolors="none",
                     edgecolors=COLOURS[0], label="reached")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("floating-point operations of a training, 6ND")
    axes.set_ylabel("validation loss, nats a token")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)
