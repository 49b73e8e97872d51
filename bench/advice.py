"""Predicted against achieved gains: every rule's advice, pasted into the script that asked for it.

For every case of advice_cases.py it runs the script under ``unstarve run``, takes the advice from the
report, pastes its code over the loader's statement as a person would, and trains with both scripts in turns,
without unstarve. It prints the predicted gain with its interval beside the achieved one. The exit code is 1
if the bars are missed.

    python bench/advice.py [--rule ID…] [--rounds N] [--quick] [--json FILE]

Rules without a case are listed at the end. Other load on the same cores spoils a measurement: the last column
says how many cores other processes used.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import platform
import re
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accuracy import call, children_cpu_s, machine_cpu_s
from advice_cases import CASES, Case
from planted import CORES, MARK

from unstarve.advise.all_rules import HOST_RULES, RULES
from unstarve.intervals import turn_order
from unstarve.outputs import write_output

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "helpers"))

from pasted import pasted, shell_commands  # noqa: E402 - found by the line above

BARS = {"median": 0.15, "inside": 0.80}
SCRIPT, CHANGED = "train.py", "changed.py"
LONGEST_S = 600
CALM_CORES = 0.3


@dataclass(frozen=True)
class Outcome:
    """One piece of advice, followed."""

    rule: str
    predicted: float
    low: float
    high: float
    achieved: float
    """Median over the rounds."""
    rounds: tuple[float, ...]
    neighbours: float

    @property
    def error(self) -> float:
        return self.achieved / self.predicted - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.achieved <= self.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rule", nargs="+", metavar="ID", choices=list(CASES), help="only these")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="trainings of each script")
    parser.add_argument("--quick", action="store_true", help="a few rules, one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every outcome")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else max(arguments.rounds, 1)
    chosen = arguments.rule or [id for id, case in CASES.items() if case.quick or not arguments.quick]
    # The scripts import `planted`, and commands in the advice call `unstarve`.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {CORES} cores\n")
    print(f"{'advice':32}{'predicted':>20}{'achieved':>10}{'rounds':>14}{'neighbours':>15}")
    outcomes: list[Outcome] = []
    untried: dict[str, str] = {}
    try:
        for id in chosen:
            found = why_not(id, CASES[id]) or followed(id, CASES[id], rounds)
            if isinstance(found, str):
                untried[id] = found
                print(f"{id:32}{found}", flush=True)
            else:
                outcomes.append(found)
                print(row(found), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    if not arguments.rule:
        for rule in (*RULES, *HOST_RULES):
            if not set(ids_of(rule)) & set(CASES):
                print(f"{' or '.join(ids_of(rule)) or rule.__name__:32}no case in advice_cases.py")
    if arguments.json:
        told = {"outcomes": [asdict(one) for one in outcomes], "untried": untried}
        write_output(arguments.json, json.dumps(told, indent=1))
    sys.exit(0 if summarized(outcomes, len(untried)) else 1)


def why_not(id: str, case: Case) -> str | None:
    """Why the case cannot be tried here, or None."""
    known = {word for rule in (*RULES, *HOST_RULES) for word in ids_of(rule)}
    if not set(id.split("+")) <= known:
        return "no rule gives this advice"
    if case.cores > CORES:
        return f"needs {case.cores} cores"
    if case.gpu and not torch.cuda.is_available():
        return "needs a GPU"
    return None


def followed(id: str, case: Case, rounds: int) -> Outcome | str:
    """The advice, pasted and measured; or why that was not possible."""
    with tempfile.TemporaryDirectory(prefix="advice-") as place:
        folder = Path(place)
        if case.prepare is not None:
            case.prepare(folder)
        script = case.script
        (folder / SCRIPT).write_text(script)
        report = recorded(folder)
        if report is None:
            return "the script failed"
        one = next((advice for advice in report["advice"] if advice["id"] == id), None)
        if one is None:
            return f"not advised: {told(report, id)}"
        if one["speedup"] is None:
            return "advised without a gain"
        try:
            changed = changed_command(folder, script, case, report, one)
        except (AssertionError, KeyError, IndexError) as error:
            return f"cannot be pasted: {error}"
        busy_s, own_s, begin = machine_cpu_s(), children_cpu_s(), time.perf_counter()
        gains = []
        both = {"before": [sys.executable, SCRIPT], "after": changed}
        for number in range(rounds):
            per_s = {name: speed(folder, both[name]) for name in turn_order(tuple(both), number)}
            if not per_s["before"] or not per_s["after"]:
                return f"the script failed {'before' if per_s['after'] else 'after'} the change"
            gains.append(per_s["after"] / per_s["before"])
        others_s = machine_cpu_s() - busy_s - (children_cpu_s() - own_s)
        gain = one["speedup"]
        return Outcome(
            id,
            gain["predicted"],
            gain["low"],
            gain["high"],
            median(gains),
            tuple(gains),
            max(others_s, 0.0) / (time.perf_counter() - begin),
        )


def changed_command(
    folder: Path, script: str, case: Case, report: dict[str, Any], one: dict[str, Any]
) -> list[str]:
    """Make the change; the command that trains with it."""
    if not case.followed and not one["code"] and one["command"]:
        return ["bash", "-c", one["command"]]
    changed = case.followed or pasted(script, report, one["code"])
    (folder / CHANGED).write_text(changed)
    for command in shell_commands(one["code"]):
        call(shlex.split(command), str(folder), LONGEST_S)
    return [sys.executable, CHANGED]


def recorded(folder: Path) -> dict[str, Any] | None:
    """The report of the script under ``unstarve run``."""
    out = folder / "report.json"
    command = [
        sys.executable,
        "-m",
        "unstarve",
        "run",
        "-q",
        "-f",
        "-o",
        "run.unstarve",
        "--json",
        str(out),
        SCRIPT,
    ]
    call(command, str(folder), LONGEST_S)
    return dict(json.loads(out.read_text())) if out.exists() else None


def told(report: dict[str, Any], id: str) -> str:
    """What the report says instead of this advice."""
    verdict = report["verdict"]
    reasons = [f"{one['what']}: {one['why']}" for one in report["rejected"] if one["id"] in id.split("+")]
    advised = [one["id"] for one in report["advice"]]
    return "; ".join(
        [f"{verdict['state']} {verdict['cause']}", *reasons, f"advice: {', '.join(advised) or 'none'}"]
    )


def speed(folder: Path, command: list[str]) -> float | None:
    """Steps per second by the script's own clock; None if it failed."""
    for line in reversed(call(command, str(folder), LONGEST_S).splitlines()):
        if line.startswith(MARK):
            return float(json.loads(line.removeprefix(MARK))["per_s"])
    return None


def ids_of(rule: Callable[..., Any]) -> list[str]:
    """The ids of advice that a rule may give: words with hyphens among its calls' arguments."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule)))
    words = [
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    return [word for word in words if re.fullmatch(r"[a-z]+(-[a-z]+)+", word)]


def row(one: Outcome) -> str:
    promise = f"{one.predicted:.2f}× ({one.low:.2f}–{one.high:.2f})"
    spread = f"{min(one.rounds):.2f}–{max(one.rounds):.2f}"
    mark = " " if one.inside else "✗"
    return f"{one.rule:32}{promise:>20}{one.achieved:>9.2f}×{mark}{spread:>13}{one.neighbours:>9.2f} cores"


def summarized(outcomes: Sequence[Outcome], untried: int) -> bool:
    """Print the summary; whether the bars are met, and most of the cases could be tried."""
    if not outcomes:
        print("\nnothing was measured")
        return False
    calm = [one for one in outcomes if one.neighbours < CALM_CORES]
    print()
    for title, some in (("all", outcomes), ("without neighbours", calm)):
        if some:
            print(
                f"{len(some)} pieces of advice followed ({title}): median error {middle_error(some):.1%} "
                f"(bar ≤ {BARS['median']:.0%}), inside the interval {inside_share(some):.0%} "
                f"(bar ≥ {BARS['inside']:.0%})"
            )
    print(f"{untried} could not be followed here")
    met = middle_error(outcomes) <= BARS["median"] and inside_share(outcomes) >= BARS["inside"]
    return met and len(outcomes) >= untried


def middle_error(outcomes: Sequence[Outcome]) -> float:
    return median(abs(one.error) for one in outcomes)


def inside_share(outcomes: Sequence[Outcome]) -> float:
    return sum(one.inside for one in outcomes) / len(outcomes)


if __name__ == "__main__":
    main()
