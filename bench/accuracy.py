"""How often the verdict is right: the zoo of planted bottlenecks, run under ``unstarve run``.

For every case it prints the truth and the verdict, the wait share that the script measured itself and the
reported one, and how much of the machine other processes used meanwhile. It is a measurement, not a gate: the
exit code is always 0.

    python bench/accuracy.py [--repeats N] [--only NAME…] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from zoo import CASES
from zoo.case import Case
from zoo.cgroups import sweep
from zoo.truth import parse_truth

from unstarve.outputs import write_output

PLAY = Path(__file__).with_name("play.py")
LONGEST_S = 90
NO_REPORT = {"verdict": {"state": "no", "cause": "report"}, "wait_share": None}
CALM_CORES = 0.3
BARS = {"state": 0.95, "cause": 0.90, "points": 3.0}


@dataclass(frozen=True)
class Outcome:
    """One run of one case."""

    case: str
    true_state: str
    true_cause: str
    state: str
    cause: str
    true_wait_share: float | None
    wait_share: float | None
    seconds: float
    """Duration of the whole command, including imports and the report."""
    neighbours: float
    """Cores used by other processes meanwhile, including other virtual machines."""
    pressure: float
    """Share of the time in which a runnable task, of the case or not, had no core."""
    evidence: tuple[str, ...] = ()

    @property
    def state_ok(self) -> bool:
        return self.state == self.true_state

    @property
    def cause_ok(self) -> bool:
        return self.cause == self.true_cause

    @property
    def error_points(self) -> float | None:
        """Reported minus true wait share, in percentage points."""
        if self.wait_share is None or self.true_wait_share is None:
            return None
        return (self.wait_share - self.true_wait_share) * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of every case")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[case.name for case in CASES])
    parser.add_argument("--quick", action="store_true", help="only cases far from every threshold")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every outcome to this file")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if case.quick or not arguments.quick]
    if arguments.only:
        chosen = [case for case in chosen if case.name in arguments.only]
    skipped = {case.name: why for case in chosen if (why := case.why_not())}
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"\n{'case':28}{'truth':21}{'verdict':25}{'wait':>6}{'told':>7}{'took':>8}{'neighbours':>14}")
    outcomes: list[Outcome] = []
    try:
        for case in arguments.repeats * [case for case in chosen if case.name not in skipped]:
            outcomes.append(play(case))
            print(row(outcomes[-1]), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    for name, why in skipped.items():
        print(f"{name:28}skipped: {why}")
    print_summary(outcomes)
    if arguments.json:
        write_output(arguments.json, json.dumps([asdict(outcome) for outcome in outcomes], indent=1))


def play(case: Case) -> Outcome:
    """Run a case under ``unstarve run`` in a separate folder."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        report_file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "unstarve", "run", "-o", "zoo.unstarve", "--json", str(report_file)]
        busy_s, own_s, pressed_s = machine_cpu_s(), children_cpu_s(), pressure_s()
        begin = time.perf_counter()
        output = call([*command, str(PLAY), case.name], folder)
        seconds = time.perf_counter() - begin
        others_s = machine_cpu_s() - busy_s - (children_cpu_s() - own_s)
        report: dict[str, Any] = json.loads(report_file.read_text()) if report_file.exists() else NO_REPORT
    return Outcome(
        case.name,
        case.state,
        case.cause,
        report["verdict"]["state"],
        report["verdict"]["cause"],
        parse_truth(output)["wait_share"],
        report["wait_share"],
        seconds,
        max(others_s, 0.0) / seconds,
        (pressure_s() - pressed_s) / seconds,
        tuple(report["verdict"].get("evidence", ())),
    )


def call(command: list[str], folder: str, longest_s: float = LONGEST_S) -> str:
    """Return the command's output. No process it started outlives the call, even if that is interrupted."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    finally:
        sweep()
    if process.returncode:
        print(f"{' '.join(command)} ended with {process.returncode}:\n{errors}", file=sys.stderr)
    return output


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine_cpu_s() -> float:
    """From the first line of /proc/stat: ``cpu user nice system idle iowait irq softirq steal …`` (ticks)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def pressure_s() -> float:
    """From ``some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`` (µs); 0 if the kernel does not count it."""
    try:
        line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    except OSError:
        return 0.0
    return int(line.rpartition("=")[2]) / 1e6


def row(outcome: Outcome) -> str:
    marks = "".join("✓" if ok else "✗" for ok in (outcome.state_ok, outcome.cause_ok))
    truth = f"{outcome.true_state} {outcome.true_cause}"
    verdict = f"{outcome.state} {outcome.cause}"
    return (
        f"{outcome.case:28}{truth:21}{verdict:22}{marks:3}{percent(outcome.true_wait_share):>6}"
        f"{percent(outcome.wait_share):>7}{outcome.seconds:6.1f} s{outcome.neighbours:8.2f} cores"
    )


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f}"


def print_summary(outcomes: list[Outcome]) -> None:
    print()
    print_right("state", outcomes, Counter(o.case for o in outcomes if not o.state_ok))
    print_right("cause", outcomes, Counter(o.case for o in outcomes if not o.cause_ok))
    calm = [outcome for outcome in outcomes if outcome.neighbours < CALM_CORES]
    if len(calm) < len(outcomes):
        right = sum(outcome.state_ok and outcome.cause_ok for outcome in calm)
        print(f"both right with neighbours below {CALM_CORES} cores: {right} of {len(calm)}")
    compared = [
        (points, outcome.case) for outcome in outcomes if (points := outcome.error_points) is not None
    ]
    if compared:
        points, name = max(compared, key=lambda pair: abs(pair[0]))
        print(f"largest wait-share error: {points:+.1f} points, {name}  (bar ≤ {BARS['points']:g} points)")


def print_right(what: str, outcomes: list[Outcome], wrong: Counter[str]) -> None:
    count = len(outcomes)
    right = count - wrong.total()
    if count:
        print(f"{what} right: {right} of {count} = {right / count:.1%}  (bar ≥ {BARS[what]:.0%})")
    if wrong:
        print(f"  wrong: {', '.join(f'{name} ×{times}' for name, times in wrong.items())}")


if __name__ == "__main__":
    main()
