"""A week of training recorded on a fake clock: how large the run file stays, and what is right in its report.

Steps take ten batches a second from 8 loaders in turn, with 8 workers each; waits double after half the time.
Rows are written as training processes write theirs, and folded as `unstarve run` does it. Percentiles are
compared with those of all steps.

    python bench/long_run.py [--days 7] [--max-size 256]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from long_runs import LongTraining  # made-up rows, shared with the tests
from unstarve import api
from unstarve.model import Diagnosis, Spread
from unstarve.record.fold import KeepSmall, segment_bytes

STEPS_PER_S, LOADERS, WORKERS = 10, 8, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--max-size", type=int, default=256, metavar="MB")
    wanted = parser.parse_args()
    steps, most_bytes = round(wanted.days * 86_400 * STEPS_PER_S), wanted.max_size << 20
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        training, largest, spent_s, passes = _record(Path(folder, "week.unstarve"), steps, most_bytes)
        size = training.run.stat().st_size
        print(f"{steps:,} steps, {LOADERS} loaders with {WORKERS} workers each, --max-size {wanted.max_size}")
        print(f"run file     {size / 1e6:.1f} MB; while recording at most {largest / 1e6:.1f} MB of parts")
        print(
            f"folding      {passes} times, {spent_s:.1f} s of the launcher's time, peak {_peak_mb():.0f} MB"
        )
        began = time.perf_counter()
        run = api.load_run(training.run)
        _tell(api.diagnose(run), training, time.perf_counter() - began)


def _record(path: Path, steps: int, most_bytes: int) -> tuple[LongTraining, int, float, int]:
    training = LongTraining(
        path, steps, WORKERS, loaders=LOADERS, epoch_steps=36_000, slow_every=50_000,
        step_ms=80.0, wait_ms=8.0, segment_bytes=segment_bytes(most_bytes),
    )  # fmt: skip
    keeper, largest, spent_s, passes = KeepSmall(path, most_bytes), 0, 0.0, 0
    while training.write_block():
        parts = sum(part.stat().st_size for part in Path(f"{path}.parts").iterdir())
        largest = max(largest, parts)
        began = time.perf_counter()
        keeper.look()
        passed_s = time.perf_counter() - began
        passes += passed_s > 0.1
        spent_s += passed_s
    training.finish()
    return training, largest, spent_s, passes


def _tell(diagnosis: Diagnosis, training: LongTraining, report_s: float) -> None:
    told_s = sum(part.seconds for part in (*diagnosis.budget, *diagnosis.outside))
    print(f"report       {report_s:.1f} s; {diagnosis.lost[-1]}")
    print(f"books        budget + outside = {told_s:,.0f} s of {diagnosis.wall_s:,.0f} s of wall time")
    print("budget       " + ", ".join(f"{part.cause} {part.share:.1%}" for part in diagnosis.budget))
    for name, spread, truth in (
        ("wait", diagnosis.wait_ms, training.waits_ns), ("step", diagnosis.step_ms, training.steps_ns),
    ):  # fmt: skip
        _compare(name, spread, np.concatenate(truth) / 1e6)


def _compare(name: str, spread: Spread | None, true_ms: np.ndarray) -> None:
    if spread is None:
        return
    p50, p95 = np.percentile(true_ms, [50, 95])
    told = [("mean", spread.mean, true_ms.mean()), ("p50", spread.p50, p50), ("p95", spread.p95, p95)]
    print(
        f"{name}         "
        + ", ".join(f"{n} {value:.2f} ms ({value / true - 1:+.2%})" for n, value, true in told)
    )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
