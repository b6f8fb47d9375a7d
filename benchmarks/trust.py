"""How often headway was attacked, and what did not hold: long rounds of the harness in tests/fuzz.

    PYTHONPATH=src python benchmarks/trust.py kills=60 damage=100 command_lines=170

Each word is a file of the harness (its name between `test_` or `test_fuzz_` and `.py`) and how many times a short round
it runs; files run side by side, with `--workers N` the tests of a file too. Each has a record: of every test the
attacks, and whether anything did not hold.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FUZZ = Path(__file__).resolve().parent.parent / "tests" / "fuzz"


def file_of(name: str) -> Path:
    found = [path for path in (FUZZ / f"test_fuzz_{name}.py", FUZZ / f"test_{name}.py") if path.is_file()]
    if not found:
        raise SystemExit(f"tests/fuzz has no file for '{name}'")
    return found[0]


def started(name: str, rounds: int, report: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"]
    command += ["-n", str(workers)] if workers > 1 else []
    command += [f"--junitxml={report}", str(file_of(name))]
    return subprocess.Popen(command, cwd=FUZZ.parent.parent, env=os.environ | {"HEADWAY_FUZZ": str(rounds)})


def rows_of(report: Path) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        row = rows.setdefault(
            (case.get("name") or "").split("[")[0],
            {"attacks": 0, "tests": 0, "failed": 0, "seconds": 0.0},
        )
        row["attacks"] += sum(int(found.get("value") or 0) for found in case.iter("property"))
        row["tests"] += 1
        row["failed"] += sum(1 for child in case if child.tag in ("failure", "error"))
        row["seconds"] = round(row["seconds"] + float(case.get("time") or 0), 1)
    return [{"test": test, **row} for test, row in rows.items()]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("rounds", nargs="+", metavar="FILE=N")
    parser.add_argument("--workers", type=int, default=1, help="tests of a file at once")
    options = parser.parse_args()
    asked = {name: int(count) for name, count in (word.split("=") for word in options.rounds)}
    with tempfile.TemporaryDirectory() as folder:
        reports = {name: Path(folder) / f"{name}.xml" for name in asked}
        running = {name: started(name, rounds, reports[name], options.workers) for name, rounds in asked.items()}
        for name, process in running.items():
            process.wait()
            write(f"trust-{name}", "cpu", rows_of(reports[name]), options.out)


if __name__ == "__main__":
    main()
