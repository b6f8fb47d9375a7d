"""No two modules of headway import each other, directly or through others; TYPE_CHECKING imports count."""

import ast
from pathlib import Path

import headway

ROOT = Path(headway.__file__).parent


def modules():
    """Every module's name and file; a package is its `__init__`."""
    for path in ROOT.rglob("*.py"):
        parts = ("headway", *path.relative_to(ROOT).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path, known):
    """The modules that a file names in any import. `from a import b` is an import of a.b where that is a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def circles(graph):
    """Sets of modules each of which reaches all others of its set (Tarjan 1972)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_circles_are_found():
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a", "d"]}) == [["b", "c"]]


def test_no_import_circle():
    known = dict(modules())
    graph = {name: sorted(set(imports(path, known)) - {name}) for name, path in known.items()}
    assert len(graph) > 200 and circles(graph) == []
