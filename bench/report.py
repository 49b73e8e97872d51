"""What the report of a large run costs: in the terminal, as a page (``--html``), and opened in Chromium.

The runs are synthetic, on a fake clock, written as training processes would: 10,000, 100,000 and a million
steps, with and without 8 workers. Times are a user's, including the start of Python; other work on the
machine lengthens them, but hardly the CPU time. Memory is the most that the process held. The page is that of
10,000 steps and 8 workers.

    python bench/report.py [--repeats N] [--no-page]
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
from long_runs import write_long_run  # noqa: E402
from run_files import write_run  # noqa: E402

WRITE_BAR_S, OPEN_BAR_S, SIZE_BAR_BYTES = 3.0, 1.0, 1_000_000
REPORT_BAR_S, MEMORY_BAR_MB = 5.0, 500.0
STEPS, WORKERS = (10_000, 100_000, 1_000_000), (0, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-page", action="store_true", help="print time and memory of reports alone")
    wanted = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        _reports(Path(name))
        if not wanted.no_page:
            _page(Path(name), wanted.repeats)


def _reports(folder: Path) -> None:
    print("    steps  workers     file   report  of it CPU    memory")
    for steps in STEPS:
        for workers in WORKERS:
            run = write_long_run(folder / f"{steps}-{workers}.unstarve", steps, workers).run
            wall_s, cpu_s, memory_mb = _reported([sys.executable, "-m", "unstarve", "report", str(run)])
            judged = (
                _judged(wall_s, REPORT_BAR_S) if wall_s > REPORT_BAR_S else _judged(memory_mb, MEMORY_BAR_MB)
            )
            size_mb = run.stat().st_size / 1e6
            print(f"{steps:9,} {workers:8} {size_mb:5.0f} MB {wall_s:6.2f} s {cpu_s:8.2f} s", end=" ")
            print(f"{memory_mb:6.0f} MB   {judged}")
            run.unlink()


def _reported(command: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and megabytes of one process."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def _page(folder: Path, repeats: int) -> None:
    run = write_run(folder / "large.unstarve", large_run(10_000, 8))
    page = folder / "large.html"
    command = [sys.executable, "-m", "unstarve", "report", str(run), "--html", str(page)]
    write_s = _median(lambda: subprocess.run(command, check=True, capture_output=True), repeats)
    print(f"10,000 steps, 8 workers, median of {repeats}")
    print(f"written in   {write_s:.2f} s   {_judged(write_s, WRITE_BAR_S)}")
    size = page.stat().st_size
    print(f"page         {size / 1e3:.0f} KB   {_judged(size, SIZE_BAR_BYTES)}")
    opened_s = _opened_s(page, repeats)
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
