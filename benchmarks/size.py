"""How large the package is: code lines (no blanks, comments, docstrings) by folder, the median file, the longest
functions, and switches on kinds of model outside their own files.

    python benchmarks/size.py                       of this tree
    python benchmarks/size.py --before OTHER/src    and of an older one
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from test_axes import switches  # noqa: E402

BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str) -> set[int]:
    """The numbers of the lines that hold code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            found.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def measured(package: Path) -> dict[str, Any]:
    folders: Counter[str] = Counter()
    files: list[int] = []
    functions: list[tuple[int, str]] = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = code_lines(text)
        folders[path.relative_to(package).parent.as_posix()] += len(lines)
        files.append(len(lines))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = len(lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
                functions.append((inside, f"{path.relative_to(package)}:{node.name}"))
    return {
        "code_lines": sum(folders.values()),
        "by_folder": dict(folders.most_common()),
        "files": len(files),
        "median_file": statistics.median(files),
        "longest_functions": [f"{name} {lines}" for lines, name in sorted(functions, reverse=True)[:5]],
        "switches": len(switches(package)),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--before", metavar="SRC", help="src/ of an older tree")
    options = parser.parse_args()
    rows = [{"tree": "now"} | measured(HERE.parent / "src" / "headway")]
    if options.before:
        rows.append({"tree": "before"} | measured(Path(options.before) / "headway"))
    write("size", "cpu", rows, options.out)


if __name__ == "__main__":
    main()
