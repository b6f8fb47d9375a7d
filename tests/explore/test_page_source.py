"""The built page is what its sources make, is small, names its licences and knows no other host. No Node is needed."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

from headway.explore.pages import PAGE, PLACE

WEB = Path(__file__).parents[2] / "web"
LEFT_OUT = {"node_modules", ".vite", "README.md"}


def _sources(folder: Path) -> list[str]:
    found = []
    for path in folder.iterdir():
        if path.name not in LEFT_OUT:
            found += _sources(path) if path.is_dir() else [path.relative_to(WEB).as_posix()]
    return found


def test_the_build_is_of_these_sources():
    whole = hashlib.sha256()
    for path in sorted(_sources(WEB)):
        own = hashlib.sha256((WEB / path).read_bytes()).hexdigest()
        whole.update(f"{path}\0{own}\n".encode())
    recorded = (PAGE.parent / "source.sha256").read_text().strip()
    assert recorded == whole.hexdigest(), "the page is stale: run `npm install && npm run build` in web/"


def test_the_page_is_one_small_file():
    html = PAGE.read_bytes()
    assert len(gzip.compress(html)) < 150_000
    assert html.count(PLACE.encode()) == 1
    assert not re.search(rb'<(script|link|img)[^>]*(src|href)="(?!data:)', html), "something lies outside of the page"


def test_the_page_names_no_other_host():
    """Names of XML and what a licence or an error message of a library points at are no requests."""
    hosts = set(re.findall(rb"(?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+)", PAGE.read_bytes()))
    assert hosts <= {b"www.w3.org", b"svelte.dev"}
    assert b"default-src 'self'" in PAGE.read_bytes()


def test_everything_in_the_page_has_its_licence():
    told = (PAGE.parent / "LICENCES.txt").read_text(encoding="utf-8")
    for name in ("svelte", "d3-scale", "d3-interpolate", "d3-color", "d3-array", "d3-format"):
        assert re.search(rf"^{name} \d", told, re.MULTILINE), f"{name} is not named"
    assert "(MIT)" in told and "(ISC)" in told


def test_the_lock_file_names_no_place_to_download_from():
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, facts in lock["packages"].items() if "resolved" in facts]
