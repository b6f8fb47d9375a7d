"""How quickly the page opens and follows the pointer, with large traces.

    PYTHONPATH=tests:tests/explore python benchmarks/page.py

The aim: a trace of 12 layers of 12 heads over 512 tokens opens within two seconds, and a picture follows the pointer
within 50 ms.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from browsing import Visit, browsing
from made_pages import made_trace, written
from test_page_speed import hovers

from headway.explore.payload import payload, strongest


def main() -> None:
    with browsing() as browser, tempfile.TemporaryDirectory() as folder:
        words = [f"w{i}" for i in range(512)]
        path = written(Path(folder) / "p.html", payload(made_trace(words, layers=12, heads=12)))
        opened, times = [], []
        for _ in range(3):
            with Visit(browser, path, "#row=300&column=200") as visit:
                visit.page.wait_for_function("() => document.querySelector('.main canvas')?.dataset.drawn")
                opened.append(visit.page.evaluate("performance.now()") / 1000)
                times += hovers(visit, ".main canvas")
        size = path.stat().st_size / 1e6
        print(f"12 × 12 × 512 × 512 ({size:.0f} MB): open {min(opened):.2f} s, hover {statistics.median(times):.1f} ms")
        trace = strongest(made_trace([f"w{i}" for i in range(2000)], layers=2, heads=4, spread=3))
        with Visit(browser, written(Path(folder) / "q.html", trace.to_bytes("uint8")), "#row=1500&column=900") as visit:
            matrix = statistics.median(hovers(visit, ".main canvas"))
            visit.page.click("text=Lines")
            lines = statistics.median(hovers(visit, ".main canvas"))
        print(f"2,000 tokens: hover {matrix:.1f} ms, over lines {lines:.1f} ms")


if __name__ == "__main__":
    main()
