"""Three axes: no file outside a family's own, the hub's families and the registries switches on a kind of model.

A switch is an `isinstance` of a class that a family, a head, a task or a modality defines, a comparison with the name
of one, a probe (`hasattr`, or `getattr` with a default) of a model or its config, or the number of its vocabularies.
`python tests/test_axes.py SRC` counts them in another tree.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "headway"
# Where a kind of model is told: families with their heads, their counterparts in other formats, and the registries.
FREE = ("models/", "hub/families/", "tasks/__init__.py", "processors/__init__.py", "nn/")  # nn/ cannot import kinds
# Folders whose classes are kinds; each file of tasks/ and processors/ is one.
KINDS = ("models/", "tasks/", "processors/")
ANSWERING = {"Translator", "Generator", "Encoder", "TextTranslator"}
PROBED = {"model", "config", "network", "encoder", "plain_model", "loaded", "card", "state"}
NEUTRAL = {"_orig_mod", "training", "model", "wraps"}  # attributes of any module, wrapper or answering object
COUNTED = {"vocabularies", "sizes", "takes", "processors"}
# Abstract classes and plain values that live beside kinds.
NOT_KINDS = {
    "Task",
    "Figure",
    "Report",
    "Prediction",
    "RunContext",
    "Objective",
    "Batch",
    "Head",
    "Encoded",
    "Embedded",
}


def switches(src: Path = SRC) -> list[str]:
    """`file:line: what` of every switch."""
    trees = {
        path.relative_to(src).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in src.rglob("*.py")
    }
    classes, names = set(ANSWERING), set()
    for place, tree in trees.items():
        if place.startswith(KINDS):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes.add(node.name)
                    names |= set(_names(node))
    classes -= NOT_KINDS
    return [
        f"{place}:{line}: {what}"
        for place, tree in sorted(trees.items())
        if not place.startswith(FREE)
        for line, what in _switches(tree, classes - _defined(tree), names - _names_of(tree))
    ]


def _names(node: ast.ClassDef) -> Iterator[str]:
    """The value of a class variable `name` of a config, a task or a processor."""
    for line in node.body:
        target = (
            line.target
            if isinstance(line, ast.AnnAssign)
            else line.targets[0]
            if isinstance(line, ast.Assign)
            else None
        )
        value = getattr(line, "value", None)
        if isinstance(target, ast.Name) and target.id == "name" and isinstance(value, ast.Constant) and value.value:
            yield str(value.value)


def _defined(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def _names_of(tree: ast.Module) -> set[str]:
    return {name for node in tree.body if isinstance(node, ast.ClassDef) for name in _names(node)}


def _switches(tree: ast.Module, classes: set[str], names: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass") and (found := _idents(node.args[1]) & classes):
                yield node.lineno, f"{node.func.id} {', '.join(sorted(found))}"
            probe = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
            if probe and _last(node.args[0]) in PROBED and not set(_texts(node.args[1])) & NEUTRAL:
                yield node.lineno, f"{node.func.id}({ast.unparse(node.args[0])}, {ast.unparse(node.args[1])})"
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(_counts(side) for side in sides):
                yield node.lineno, ast.unparse(node)
            kinds = {text for side in sides for text in _texts(side)} & names
            if kinds and any(_last(side) in ("family", "task", "name", "model_type", "kind") for side in sides):
                yield node.lineno, ast.unparse(node)


def _idents(node: ast.expr) -> set[str]:
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    }


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _counts(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and _last(node.func) == "len" and bool(node.args) and _last(node.args[0]) in COUNTED
    )


def _texts(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def test_no_file_outside_the_axes_switches_on_a_kind_of_model() -> None:
    assert switches() == []


def test_the_count_sees_every_form_of_switch(tmp_path: Path) -> None:
    """On a small tree with one of each."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "one.py").write_text('class OneConfig:\n    name = "one"\nclass One: pass\n')
    (tmp_path / "use.py").write_text(
        "def f(model, card):\n"
        "    if isinstance(model, One): pass\n"
        "    if card.family == 'one': pass\n"
        "    if hasattr(model, 'hidden'): pass\n"
        "    if getattr(model.config, 'width', 0): pass\n"
        "    if len(card.vocabularies) == 2: pass\n"
        "    if isinstance(model, str) or card.family == other: pass\n"
    )
    assert [line.split(": ", 1)[0] for line in switches(tmp_path)] == [f"use.py:{number}" for number in range(2, 7)]


if __name__ == "__main__":
    found = switches(Path(sys.argv[1]) if len(sys.argv) > 1 else SRC)
    print("\n".join([*found, f"{len(found)} switches"]))
