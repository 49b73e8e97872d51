"""How long the page of a large run takes to write (``unstarve report --html``) and to open in Chromium.

The run is synthetic: 10,000 steps, 8 workers, on a fake clock, written as training processes would. Writing
is timed as a user sees it, including the start of Python; opening, from navigation until everything is drawn.

    python bench/report.py [--steps N] [--workers N] [--repeats N]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "helpers"
sys.path.insert(0, str(TESTS))

from large_run import large_run  # noqa: E402  # a made-up run, shared with the tests of the page
from run_files import write_run  # noqa: E402

WRITE_BAR_S, OPEN_BAR_S, SIZE_BAR_BYTES = 3.0, 1.0, 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    wanted = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write_run(folder / "large.unstarve", large_run(wanted.steps, wanted.workers))
        page = folder / "large.html"
        command = [sys.executable, "-m", "unstarve", "report", str(run), "--html", str(page)]
        write_s = _median(lambda: subprocess.run(command, check=True, capture_output=True), wanted.repeats)
        print(f"{wanted.steps} steps, {wanted.workers} workers, median of {wanted.repeats}")
        print(f"written in   {write_s:.2f} s   {_judged(write_s, WRITE_BAR_S)}")
        size = page.stat().st_size
        print(f"page         {size / 1e3:.0f} KB   {_judged(size, SIZE_BAR_BYTES)}")
        opened_s = _opened_s(page, wanted.repeats)
        if opened_s is None:
            print("opened in    not measured: no Chromium here")
        else:
            print(f"opened in    {opened_s:.2f} s   {_judged(opened_s, OPEN_BAR_S)}")


def _opened_s(page: Path, repeats: int) -> float | None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1100, "height": 900})

        def opened() -> None:
            tab.goto(page.as_uri())
            tab.wait_for_selector("#page[data-ready]")

        opened()  # the browser itself gets ready
        seconds = _median(opened, repeats)
        browser.close()
    return seconds


def _median(work: Callable[[], object], repeats: int) -> float:
    taken_s = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken_s.append(time.perf_counter() - began)
    return statistics.median(taken_s)


def _judged(value: float, bar: float) -> str:
    return "met" if value <= bar else f"missed: at most {bar:g}"


if __name__ == "__main__":
    main()
