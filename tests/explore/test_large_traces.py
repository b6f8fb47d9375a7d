"""The page draws large traces and follows the pointer in them; `benchmarks/page.py` measures how quickly."""

from __future__ import annotations

import pytest

from browsing import Visit, need_browser
from headway.explore.payload import payload, strongest
from made_pages import made_trace, written

need_browser()


def readout(visit: Visit, canvas: str) -> list[str]:
    """What the page reports under two positions of the pointer."""
    return visit.page.eval_on_selector(
        canvas,
        """async c => {
            const r = c.getBoundingClientRect(), found = []
            for (const at of [0.25, 0.6]) {
                const clientX = r.left + r.width * at, clientY = r.top + r.height * at
                c.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, bubbles: true }))
                await new Promise(done => setTimeout(done, 100))
                found.push(document.querySelector('.readout').innerText)
            }
            return found }""",
    )


@pytest.mark.long
def test_two_thousand_tokens_are_drawn_and_scroll(browser, tmp_path):
    trace = strongest(made_trace([f"w{i}" for i in range(2000)], layers=2, heads=4, spread=3))
    with Visit(browser, written(tmp_path / "p.html", trace.to_bytes("uint8")), "#row=1500&column=900") as visit:
        assert "strongest" in visit.page.inner_text(".main")
        first, second = readout(visit, ".main canvas")
        assert first != second
        visit.page.click("text=Lines")
        assert all(readout(visit, ".main canvas"))
        assert visit.faults() == []
        visit.page.eval_on_selector(".scroller", "box => box.scrollTop = 20000")
        visit.page.wait_for_timeout(100)
        assert visit.colours(".main canvas") > 3 and visit.errors == []


@pytest.mark.long
def test_a_trace_of_144_heads_over_512_tokens_opens(browser, tmp_path):
    path = written(tmp_path / "p.html", payload(made_trace([f"w{i}" for i in range(512)], layers=12, heads=12)))
    with Visit(browser, path, "#row=300&column=200") as visit:
        visit.page.wait_for_function("() => document.querySelector('.main canvas')?.dataset.drawn")
        first, second = readout(visit, ".main canvas")
        assert first != second and visit.errors == []
