"""How accurate ``unstarve ideal`` is: the true speed-up of free loading against the measured one.

Steps and loads are sleeps, so the truth is known: without workers a step takes both, with workers the longer
of the two. It is a measurement for a quiet machine, not a gate: the exit code is always 0.

    python bench/ideal.py [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BAR = 0.10
"""Allowed relative error."""
TRAIN = """
import statistics, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 150
    def __getitem__(self, index):
        time.sleep(load_s)
        return torch.full((4,), float(index))

load_s, compute_s, workers = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
loader = DataLoader(Slow(), batch_size=1, num_workers=workers)
computed = []
try:
    while True:
        for batch in loader:
            before = time.perf_counter()
            time.sleep(compute_s)
            computed.append(time.perf_counter() - before)
finally:
    print(statistics.median(computed))
"""


@dataclass(frozen=True)
class Plant:
    """One training whose loads and steps are sleeps."""

    load_s: float
    compute_s: float
    workers: int

    def truth(self, step_s: float) -> float:
        """Return the speed-up of free loading if computing really took `step_s`."""
        if not self.workers:
            return (step_s + self.load_s) / step_s
        return max(step_s, self.load_s / self.workers) / step_s


PLANTS = (
    Plant(0.0, 0.010, 0),
    Plant(0.015, 0.010, 0),
    Plant(0.050, 0.010, 2),
    Plant(0.004, 0.010, 1),
    Plant(0.050, 0.005, 2),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of every plant")
    repeats = parser.parse_args().repeats
    print(f"{'load':>8}{'compute':>9}{'workers':>9}{'truth':>8}{'measured':>10}{'interval':>14}{'error':>8}")
    errors = [measured(plant) for _ in range(repeats) for plant in PLANTS]
    within = sum(abs(error) <= BAR for error in errors)
    print(f"\nwithin {BAR:.0%}: {within} of {len(errors)}")


def measured(plant: Plant) -> float:
    """Measure one training, print a row and return the relative error."""
    with tempfile.TemporaryDirectory(prefix="ideal-") as folder:
        script, report = Path(folder) / "train.py", Path(folder) / "report.json"
        script.write_text(TRAIN)
        command = [sys.executable, "-m", "unstarve", "ideal", "-q", "--json", str(report)]
        words = [str(script), str(plant.load_s), str(plant.compute_s), str(plant.workers)]
        done = subprocess.run(
            [*command, *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=True, timeout=600
        )
        found = json.loads(report.read_text())["headroom"]
    truth = plant.truth(float(done.stdout))
    error = found["speedup"] / truth - 1
    print(
        f"{plant.load_s * 1e3:5.0f} ms{plant.compute_s * 1e3:6.0f} ms{plant.workers:9}{truth:7.2f}×"
        f"{found['speedup']:9.2f}×{found['low']:7.2f}–{found['high']:.2f}{error:+8.1%}",
        flush=True,
    )
    return float(error)


if __name__ == "__main__":
    main()
