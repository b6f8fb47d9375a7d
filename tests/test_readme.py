"""What the README and the docs show is true: tables, commands, settings, links, places in the code, examples."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli.app import HELD, app, spread

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *ROOT.glob("docs/*.md")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def _table_script() -> Any:
    spec = importlib.util.spec_from_file_location("table", ROOT / "benchmarks" / "table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as where the script is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _blocks(page: Path, *languages: str) -> list[str]:
    return [code for language, code in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages]


def _commands(page: Path) -> list[list[str]]:
    """Every `headway …` shown, in blocks and in running text, as its words."""
    text = page.read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for block in _blocks(page, "sh", "console") for line in block.splitlines()]
    lines += re.findall(r"`(headway [^`]+)`", FENCE.sub("", text))
    found = [line[at:] for line in lines for at in [_start(line)] if at >= 0]
    return [shlex.split(line, comments=True)[1:] for line in found]


def _start(line: str) -> int:
    match = re.search(r"(?:^|\| )(headway )", line)
    return match.start(1) if match else -1


def test_tables_are_what_the_results_give() -> None:
    script = _table_script()
    for page in script.pages():
        text = page.read_text(encoding="utf-8")
        assert script.rewritten(text) == text, f"run python benchmarks/table.py: {page.name} is out of date"
    assert script.main(["--check"]) == 0  # what `headway recipes` says too


def test_tables_are_rewritten_in_place_and_rows_without_a_result_left_out(tmp_path: Path) -> None:
    script = _table_script()
    end = "<!-- results:end -->\n"
    page = f"a\n<!-- results:begin scores training -->\nold\n{end}b <!-- results:begin beam -->\n{end}"
    assert script.rewritten(page, tmp_path).count("Nothing measured yet") == 2
    record = {"machine": "2 CPU cores", "date": "2026-11-15", "versions": {"torch": "2.13.0"}}
    training = {"rows": [{"who": "headway eager", "target_tokens_per_second": 12345, "times_torch_nn": 1.5}]}
    (tmp_path / "training-cpu.json").write_text(json.dumps(record | {"case": {"vocabulary": 10_000}} | training))
    runs = [
        {"seed": seed, "validation BLEU": 42.7, "test BLEU": 41.0 + seed / 2, "training seconds": 61.2}
        for seed in (1, 2)
    ]
    score = record | {"recipe": "multi30k-en-de", "beside": 1, "rows": [run | {"parameters": 1234} for run in runs]}
    (tmp_path / "score-multi30k-en-de.json").write_text(json.dumps(score))
    made = script.rewritten(page, tmp_path)
    row = (
        "| test BLEU | 41.50 | 41.75 (2) | 42.70 | 41.02 (Wu et al. 2021) | 1,234 | 61 | 1 | 2 CPU cores | 2026-11-15 |"
    )
    assert f"| `multi30k-en-de` {row}" in made
    assert script.reaches(tmp_path)["multi30k-en-de"] == (
        "test BLEU 41.50, of 2 seeds 41.75 (published: 41.02); 2 CPU cores, 61 s beside another run"
    )
    assert "| headway eager | 12,345 | 1.50 × |" in made
    assert "2 CPU cores: vocabulary 10,000 (torch 2.13.0, 2026-11-15)." in made
    assert "old" not in made and made.count("Nothing measured yet") == 1
    assert script.rewritten(made, tmp_path) == made


def test_figures_in_running_text_are_those_of_a_record(tmp_path: Path) -> None:
    script = _table_script()
    rows = [{"who": "a", "n": 1, "share": 0.923}, {"who": "a", "n": 2, "share": 0.5, "list": [1.25, 12345]}]
    (tmp_path / "one.json").write_text(json.dumps({"rows": rows}))
    page = "<!--= one rows[who=a, n=1].share | .0% -->?<!--/--> <!--= one rows.1.list.1 -->?<!--/-->"
    assert script.rewritten(page, tmp_path) == page.replace("-->?<", "-->92 %<", 1).replace("-->?<", "-->12,345<")
    for wrong in ("two rows.0.n", "one rows.0.m", "one rows[who=b].n", "one rows[who=a].n"):
        with pytest.raises(SystemExit):
            script.rewritten(f"<!--= {wrong} -->?<!--/-->", tmp_path)


@every_page
def test_every_command_shown_has_its_verb_and_options(page: Path) -> None:
    for words in _commands(page):
        verb = [word for word in words if word not in HELD][:1]  # options of every command may stand before it
        verb = [] if not verb or verb[0].startswith("-") else verb
        shown = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
        assert shown.exit_code == 0, f"headway {words[0]} is not a verb"
        known = set(re.findall(r"--[a-z][a-z-]*", shown.output)) | set(HELD)
        for option in (word for word in words if word.startswith("--")):
            assert option in known, f"headway {words[0]} has no {option}"


@every_page
def test_every_recipe_and_setting_shown_exists(page: Path) -> None:
    from headway.plain import change
    from headway.recipes import RECIPES

    for words in _commands(page):
        if words[0] != "train" or len(words) < 2 or words[1] == "RECIPE":
            continue
        a_run = words[1].endswith("run.json") or "--resume" in words
        assert words[1] in RECIPES or a_run, f"there is no recipe {words[1]}"
        run = RECIPES.get(words[1], RECIPES["translate"]).make()
        pairs = list(zip(spread(words), spread(words)[1:], strict=False))
        change(run, [value for option, value in pairs if option == "--set" and value != "key=value"])


@every_page
def test_every_make_target_shown_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"`make ([a-z-]+)`", text)
    shown += [target for block in _blocks(page, "sh") for target in re.findall(r"^make ([a-z-]+)", block, re.MULTILINE)]
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the Makefile has no {target}"


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """A file that is there; if it is code, one that defines the name in the link's text."""
    for text, target in LINK.findall(page.read_text(encoding="utf-8")):
        path = page.parent / target.partition("#")[0]
        assert path.exists(), f"{target} is not there"
        if path.suffix == ".py":
            name = re.escape(text.strip("`"))
            code = path.read_text(encoding="utf-8")
            assert re.search(rf"^(class |def |){name}\b", code, re.MULTILINE), f"{target} has no {text}"


@every_page
def test_every_path_named_exists(page: Path) -> None:
    for path in re.findall(r"`((?:src|benchmarks|docs|tests)/[\w./]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{path} is not there"


@every_page
def test_python_shown_imports_what_is_there(page: Path) -> None:
    for block in _blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                exec(f"from {node.module} import {', '.join(alias.name for alias in node.names)}", {})


@pytest.fixture
def demo_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained model of the demo's shape as `demo` in the working folder."""
    from headway.folder import text_card, weights_of, with_tokenizers, write_model
    from headway.models.transformer import Transformer
    from headway.recipes import RECIPES
    from headway.text.tokenizer import Tokenizer

    run = RECIPES["demo"].make()
    tokenizer = Tokenizer.train(["He drives the car", "The girl does not sleep."], run.data.text)
    model = Transformer(run.model, len(tokenizer), len(tokenizer))
    card = text_card("transformer", run.model, (len(tokenizer), len(tokenizer)), run.data.text, ("en", "fr"))
    write_model(tmp_path / "demo" / "model", weights_of(model), card, with_tokenizers(card, tokenizer))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "docs/python.md", ROOT / "docs/trace.md", ROOT / "docs/analyse.md"],
    ids=lambda page: page.name,
)
def test_python_shown_runs(page: Path, demo_beside: None, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in _blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    if page.name == "python.md":
        assert "0.8808, 0.1192" in capsys.readouterr().out
