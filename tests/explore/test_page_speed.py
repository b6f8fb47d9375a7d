"""The page with large traces: it opens, draws and follows the pointer. How quickly: `benchmarks/page.py`."""

from __future__ import annotations

import pytest

from browsing import Visit, browsing, need_browser
from headway.explore.payload import payload, strongest
from made_pages import made_trace, written

need_browser()


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


def hovers(visit: Visit, canvas: str) -> list[float]:
    """Milliseconds from a movement of the pointer to the picture that follows it, painted."""
    return visit.page.eval_on_selector(
        canvas,
        """async c => {
            const r = c.getBoundingClientRect(), times = []
            for (let i = 0; i < 12; i++) {
                await new Promise(requestAnimationFrame)
                const begun = performance.now()
                const clientX = r.left + r.width * (0.2 + i * 0.05), clientY = r.top + r.height * (0.25 + i * 0.04)
                c.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, bubbles: true }))
                await new Promise(done => setTimeout(done))
                c.getContext('2d').getImageData(0, 0, 1, 1)
                times.push(performance.now() - begun)
            }
            return times }""",
    )


def test_two_thousand_tokens_can_be_pointed_at_and_scrolled(browser, tmp_path):
    trace = strongest(made_trace([f"w{i}" for i in range(2000)], layers=2, heads=4, spread=3))
    with Visit(browser, written(tmp_path / "p.html", trace.to_bytes("uint8")), "#row=1500&column=900") as visit:
        assert "strongest" in visit.page.inner_text(".main")
        assert len(hovers(visit, ".main canvas")) == 12
        visit.page.click("text=Lines")
        assert len(hovers(visit, ".main canvas")) == 12
        assert visit.faults() == []
        visit.page.eval_on_selector(".scroller", "box => box.scrollTop = 20000")
        visit.page.wait_for_timeout(100)
        assert visit.colours(".main canvas") > 3 and visit.errors == []


def test_a_large_trace_opens_and_is_drawn(browser, tmp_path):
    """12 layers of 12 heads over 512 tokens."""
    path = written(tmp_path / "p.html", payload(made_trace([f"w{i}" for i in range(512)], layers=12, heads=12)))
    with Visit(browser, path, "#row=300&column=200") as visit:
        visit.page.wait_for_function("() => document.querySelector('.main canvas')?.dataset.drawn")
        assert len(hovers(visit, ".main canvas")) == 12 and visit.errors == []
