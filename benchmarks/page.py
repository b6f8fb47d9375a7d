"""How quickly the page opens a large trace and follows the pointer, and how quickly `headway --help` answers.

PYTHONPATH=src python benchmarks/page.py --device cpu
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from browsing import Visit, browsing
from headway.explore.payload import payload, strongest
from made_pages import made_trace, written

HOVER = """async c => {
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
    return times }"""


def visited(browser: Any, name: str, page: bytes, repeats: int) -> dict[str, Any]:
    """Medians of the seconds until the first picture, and of the ms from a movement of the pointer to its picture."""
    opened, hovers = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "page.html", page)
        for _ in range(repeats):
            with Visit(browser, path, "#row=300&column=200") as visit:
                visit.page.wait_for_function("() => document.querySelector('.main canvas')?.dataset.drawn")
                opened.append(visit.page.evaluate("performance.now()") / 1000)
                hovers += visit.page.eval_on_selector(".main canvas", HOVER)
        size = path.stat().st_size / 1e6
    return {
        "trace": name, "MB": round(size, 1), "open s": round(statistics.median(opened), 2),
        "hover ms": round(statistics.median(hovers), 1),
    }  # fmt: skip


def main() -> None:
    chosen = arguments(__doc__).parse_args()
    words = [f"w{i}" for i in range(2000)]
    with browsing() as browser:
        rows = [
            visited(browser, "2 layers of 4 heads over 2,000 tokens, the strongest weights",
                    strongest(made_trace(words, layers=2, heads=4, spread=3)).to_bytes("uint8"), chosen.repeats),
            visited(browser, "12 layers of 12 heads over 512 tokens",
                    payload(made_trace(words[:512], layers=12, heads=12)), chosen.repeats),
        ]  # fmt: skip
    times = []
    for _ in range(chosen.repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "headway", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    rows.append({"command": "headway --help", "s": round(statistics.median(times), 2)})
    write(f"page-{chosen.device}", chosen.device, rows, chosen.out)


if __name__ == "__main__":
    main()
