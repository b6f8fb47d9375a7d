"""Every figure in the docs has a record that a script wrote, or is said to be quoted; every picture has a script."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
# What `benchmarks/table.py` fills in from records, and what is code or what it prints.
FROM_RECORDS = re.compile(r"<!-- results:begin.*?results:end -->|<!--=.*?<!--/-->", re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
# A number with a unit that things are measured in, a score, or a cell of a table that is a number alone.
UNITS = "tokens/s sentences/s pairs/s µs ms s seconds minutes min hours BLEU % MB GB MiB GiB TB/s GB/s nats TFLOP times"
MEASURED = re.compile(
    rf"(?<![\w.,])\d[\d,.]*\s?(?:{'|'.join(UNITS.split())})(?![\w·])"
    r"|(?:BLEU|F1|accuracy|perplexity|loss)(?: of)? \d|\|\s*\**\d[\d,.]*\s*[%×]?\**\s*(?=\|)"
)
# What is set, counted or known beforehand, not measured: a limit, a share that is asked for, somebody's price list.
SET = {
    "analyse.md": ("90 % of its row", "90 % of its attention"),
    "cost.md": ("2.1 times them", "32,633 hours", "32,455 hours", "BERT's 79 hours"),
    "counting.md": ("2, 3 and 5 times of ten",),
    "encoders.md": (
        "`first_position` | 0 | 2: rows of the table that stand for padding come first | 0",
        "`types` | 2 | 1 | 2",
    ),
    "evaluate.md": ("95 %. It is as wide",),
    "explore.md": ("more than 60 MB", "up to 1 MB"),
    "parallel.md": ("torchrun gives them 30 seconds",),
    "trace.md": ("takes 4 MB for each head",),
    "trust.md": ("at most 1 GiB and 10 seconds",),
    "worked-heads.md": ("some 25 %",),
}
QUOTED = "quoted from"


def unsourced(page: str, known: tuple[str, ...] = ()) -> list[str]:
    """Lines with a figure that neither a record nor a source stands behind."""
    text = page
    for said in known:
        text = text.replace(said, "")
    text = CODE.sub("", FROM_RECORDS.sub("", text))
    return [line for line in text.splitlines() if MEASURED.search(line) and QUOTED not in line]


def test_what_counts_as_a_figure() -> None:
    assert unsourced("it takes 12.4 ms a step") and unsourced("| a | 41.5 | b |") and unsourced("a loss of 1.44")
    assert not unsourced("a width of 128, 4 heads, `--seconds 20 s`")
    assert not unsourced("12 %, quoted from a paper") and not unsourced("takes <!--= a b -->12.4<!--/--> ms")
    assert not unsourced("at most 1 GiB", ("at most 1 GiB",))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_has_a_record_or_a_source(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = SET.get(page.name, ())
    assert all(said in text for said in known), "what is listed as set stands there no more"
    assert unsourced(text, known) == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_record_names_the_script_that_wrote_it(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    script = re.match(r"python (benchmarks/\w+\.py)\b[^;]*$", record.get("command", ""))
    assert script and (ROOT / script[1]).is_file() and {"date", "machine", "versions"} <= record.keys()
    assert "note" not in record and not any("note" in row for row in record["rows"])


def test_every_picture_of_the_docs_has_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    listed = importlib.import_module("pictures").PICTURES
    assert {path.stem for path in (ROOT / "docs").glob("*.png")} == {
        name for names in listed.values() for name in names
    }
    for script, names in listed.items():
        code = (ROOT / "benchmarks" / script).read_text(encoding="utf-8")
        assert all(name in code or name.split("-")[0] in code for name in names), script
