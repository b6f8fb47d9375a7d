"""The page is quick with large traces: it opens within two seconds, and a picture follows the pointer within 50 ms."""

from __future__ import annotations

import statistics

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


def test_two_thousand_tokens_stay_fluid(browser, tmp_path):
    trace = strongest(made_trace([f"w{i}" for i in range(2000)], layers=2, heads=4, spread=3))
    with Visit(browser, written(tmp_path / "p.html", trace.to_bytes("uint8")), "#row=1500&column=900") as visit:
        assert "strongest" in visit.page.inner_text(".main")
        times = hovers(visit, ".main canvas")
        print(f"hover over 2,000 tokens: {statistics.median(times):.1f} ms")
        assert statistics.median(times) < 50
        visit.page.click("text=Lines")
        assert statistics.median(hovers(visit, ".main canvas")) < 50
        assert visit.faults() == []
        visit.page.eval_on_selector(".scroller", "box => box.scrollTop = 20000")
        visit.page.wait_for_timeout(100)
        assert visit.colours(".main canvas") > 3 and visit.errors == []


def test_a_large_trace_opens_within_two_seconds(browser, tmp_path):
    """12 layers of 12 heads over 512 tokens."""
    path = written(tmp_path / "p.html", payload(made_trace([f"w{i}" for i in range(512)], layers=12, heads=12)))
    opened = []
    for _ in range(2):
        with Visit(browser, path, "#row=300&column=200") as visit:
            visit.page.wait_for_function("() => document.querySelector('.main canvas')?.dataset.drawn")
            opened.append(visit.page.evaluate("performance.now()") / 1000)
            times = hovers(visit, ".main canvas")
            assert visit.errors == []
    size, hover = path.stat().st_size / 1e6, statistics.median(times)
    print(f"12 × 12 × 512 × 512 ({size:.0f} MB): open {min(opened):.2f} s, hover {hover:.1f} ms")
    assert min(opened) < 2 and statistics.median(times) < 50
