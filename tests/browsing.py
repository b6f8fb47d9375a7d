"""A real browser for the page, and a server of the tests' own on loopback."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def need_browser() -> None:
    """Skips the whole module, with one line, where there is none."""
    if CHROMIUM is None:
        reason = "no Chromium on this machine (apt-get install chromium): the page is not looked at"
        pytest.skip(reason, allow_module_level=True)


@contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """One page: what it says on the console and whom it asks is kept."""

    def __init__(self, browser: Any, address: str | Path, link: str = "", **how: Any) -> None:
        how.setdefault("viewport", {"width": 1400, "height": 950})
        self.context = browser.new_context(accept_downloads=True, **how)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = address.as_uri() if isinstance(address, Path) else address
        self.page.goto(self.address + link)

    def __enter__(self) -> Visit:
        self.page.wait_for_selector("[role=tab]")
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def view(self, name: str) -> None:
        self.page.click(f"#tab-{name}")
        self.page.wait_for_selector(f"[data-view={name}] .panel")

    @property
    def views(self) -> list[str]:
        return [tab.get_attribute("id")[4:] for tab in self.page.query_selector_all("[role=tab]")]

    def link(self) -> str:
        """The address once it follows what is shown: a timer of the page, which fires after the one that writes it."""
        return self.page.evaluate("() => new Promise(done => setTimeout(() => done(location.hash), 300))")

    def faults(self) -> list[tuple[str, str]]:
        """What axe finds wrong for people who cannot see, or cannot point."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found]

    def elsewhere(self) -> list[str]:
        """Whoever was asked beside the page's own file or server."""
        own = (self.address.split("#")[0], "data:", "blob:", "about:")
        return [url for url in self.asked if not url.startswith(own)]

    def colours(self, canvas: str) -> int:
        """How many colours a picture has: one that was not drawn has one."""
        return self.page.eval_on_selector(
            canvas,
            """c => new Set(new Uint32Array(
                c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size""",
        )


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application that runs in a thread."""
    from headway.serve.running import bound
    from headway.serve.running import server as server_of

    listening = bound(0)
    server = server_of(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()
