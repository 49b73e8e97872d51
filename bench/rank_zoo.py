"""How often the report is right about ranks: planted cases, each with real ranks under ``torchrun`` and gloo.

Every fault but one is a sleep, which other load on the machine makes longer but never shorter. For each
case it prints the truth and what the report says: the pattern, the late ranks and the reason, or a finding.
A training without a planted fault is only even on a quiet machine: where other work took cores meanwhile, by
the kernel's count, that its ranks lack cores in turn is true as well. It is a measurement, not a gate: the
exit code is always 0.

    python bench/rank_zoo.py [--only NAME…] [--repeats N] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STEPS = 50
TRAINING = Path(__file__).with_name("rank_training.py")
LONGEST_S = 300
BAR = 0.95
BUSY_CORES = 0.2
"""Other work that takes more than this makes ranks wait for cores."""

When = Callable[[int, int], float]
"""Seconds by rank and step."""


def never(rank: int, step: int) -> float:
    return 0.0


def of(rank: int, seconds: float) -> When:
    """Always on one rank."""
    return lambda r, step: seconds * (r == rank)


def in_turn(seconds: float, ranks: int = 4) -> When:
    """On one rank after the other, in no regular order."""
    return lambda r, step: seconds * (r == step * 7919 % 101 % ranks)


def now_and_then(rank: int, seconds: float, every: int) -> When:
    return lambda r, step: seconds * (r == rank and step % every == every - 1)


@dataclass(frozen=True)
class RankCase:
    """A training with one planted truth."""

    name: str
    pattern: str
    late: tuple[int, ...] = ()
    reason: str | None = None
    finding: str | None = None
    """Id of the health finding that names the fault; such cases are judged by it alone."""
    every: int | None = None
    data_s: When = never
    forward_s: When = never
    backward_s: When = never
    after_s: When = never
    validation_s: When = never
    rows: Callable[[int, int], int] = lambda rank, step: 4
    """Length of the samples of a batch."""
    cpu_s: float = 0.0
    """CPU time of a step, on every rank."""
    crowded: int | None = None
    """The rank that shares its core with a busy process."""
    ranks: int = 4
    nodes: int = 1
    workers: int = 0
    epochs: int = 1
    split: str = "set_epoch"


def slow_half(rank: int, step: int) -> float:
    """The second machine reads slowly, a bit unevenly."""
    return 0.08 * (rank >= 2) + 0.02 * ((rank + step) % 2)


def length(rank: int, step: int) -> int:
    """Texts of all lengths."""
    return 4 + 60 * (step * 7919 % 101 % 4 == rank)


CASES = (
    RankCase("even", "even"),
    RankCase("all-load-slowly", "even", data_s=lambda r, s: 0.1),
    RankCase("slow-disk", "fixed", (2,), "data", data_s=of(2, 0.2), workers=1),
    RankCase("slow-disk-of-two", "fixed", (1,), "data", data_s=of(1, 0.08), ranks=2),
    RankCase("two-slow-disks", "fixed", (1, 3), "data", data_s=lambda r, s: 0.1 * (r % 2)),
    RankCase("slow-node", "node", (2, 3), "data", data_s=slow_half, nodes=2),
    RankCase("loading-in-turn", "rotating", (), "data", data_s=in_turn(0.1)),
    RankCase("lengths-vary", "rotating", (), "size", forward_s=lambda r, s: length(r, s) / 600, rows=length),
    RankCase("one-rank-has-long-texts", "fixed", (3,), "size",
             backward_s=lambda r, s: 0.1 * (r == 3), rows=lambda r, s: 64 if r == 3 else 4),
    RankCase("pause-in-loading", "pause", (1,), "data", every=10, data_s=now_and_then(1, 1.0, 10)),
    RankCase("checkpoint-on-rank-0", "pause", (0,), "after", every=10, after_s=now_and_then(0, 1.0, 10)),
    RankCase("validation-on-rank-0", "pause", (0,), "validation", every=10,
             validation_s=now_and_then(0, 1.0, 10)),
    RankCase("logging-on-rank-0", "fixed", (0,), "after", after_s=of(0, 0.08)),
    RankCase("slow-backward", "fixed", (2,), "backward", backward_s=of(2, 0.08)),
    RankCase("slow-forward", "fixed", (1,), "forward", forward_s=of(1, 0.08)),
    RankCase("backward-in-turn", "rotating", (), "backward", backward_s=in_turn(0.1)),
    RankCase("shared-core", "fixed", (1,), "cores", cpu_s=0.05, crowded=1, ranks=2),
    RankCase("set-epoch-missed", "even", finding="set-epoch-missed", epochs=3, split="missed"),
    RankCase("duplicates", "even", finding="ranks-not-split", split="not"),
    RankCase("uneven-counts", "even", finding="uneven-ranks", split="uneven"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the report said about one case."""

    case: str
    truth: str
    told: str
    right: bool
    headline: str
    others_cores: float = 0.0
    """Mean number of cores that other work took meanwhile."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[case.name for case in CASES])
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of every case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every outcome to this file")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if not arguments.only or case.name in arguments.only]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"\n{'case':26}{'truth':34}{'told':34}others' cores")
    outcomes = []
    for case in arguments.repeats * chosen:
        outcomes.append(judged(case, *play(case)))
        one = outcomes[-1]
        print(
            f"{one.case:26}{one.truth:34}{one.told:34}{one.others_cores:6.1f}  {'✓' if one.right else '✗'}",
            flush=True,
        )
        if not one.right:
            print(f"    {one.headline}")
    right = sum(one.right for one in outcomes)
    print(f"\nright: {right} of {len(outcomes)} = {right / len(outcomes):.1%}  (bar ≥ {BAR:.0%})")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def play(case: RankCase) -> tuple[dict[str, Any] | None, float]:
    """The report on one recorded run of a case, None if there is none; and the cores that others took."""
    from accuracy import children_cpu_s, machine_cpu_s  # not in the trainings, which import this file

    begin_s, busy_s, own_s = time.monotonic(), machine_cpu_s(), children_cpu_s()
    report = reported(case)
    others_s = machine_cpu_s() - busy_s - (children_cpu_s() - own_s)
    return report, max(others_s, 0.0) / (time.monotonic() - begin_s)


def reported(case: RankCase) -> dict[str, Any] | None:
    """Record a case; the report on it."""
    with tempfile.TemporaryDirectory(prefix="rank-zoo-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "unstarve", "run", "-q", "-o", "zoo.unstarve", "--json", str(report)]
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, *torchrun, str(TRAINING), case.name],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LONGEST_S,
                check=False,
            )
        return json.loads(report.read_text()) if report.exists() else None


def judged(case: RankCase, report: dict[str, Any] | None, others_cores: float) -> Outcome:
    """Compare the report with the truth."""
    if report is None:
        return Outcome(case.name, case.pattern, "no report", False, "", others_cores)
    headline = report["verdict"]["headline"]
    if case.finding is not None:
        found = sorted(one["id"] for one in report["health"])
        is_found = case.finding in found
        return Outcome(case.name, case.finding, ", ".join(found), is_found, headline, others_cores)
    ranks = report["ranks"]
    told = words(ranks["pattern"], ranks["late"], ranks["reason"], ranks["every"]) if ranks else "nothing"
    truth = words(case.pattern, case.late, case.reason, case.every)
    if case.pattern == "even" and others_cores > BUSY_CORES:
        truth = f"{truth}, or {_LACKING}"
    return Outcome(case.name, truth, told, told in truth.split(", or "), headline, others_cores)


_LACKING = "rotating cores"


def words(pattern: str, late: Any, reason: str | None, every: int | None) -> str:
    named = ",".join(map(str, late))
    parts = (pattern, named, reason or "", "" if every is None else f"every {every}")
    return " ".join(part for part in parts if part)


if __name__ == "__main__":
    main()
