"""Predicted against measured throughput: the errors of `unstarve whatif`, and how good its intervals are.

It trains every workload of whatif_play.py with several numbers of workers, each recorded by ``unstarve run``.
Then every recording predicts all the others. A second table does the same for advice: the gain that a report
promises for a change of the loader's arguments against training with that change.

Other load on the same cores changes from run to run, and no prediction can know it. So errors are printed
three times: as they are, for runs that had the machine to themselves, and with the model told about the
neighbours of the measured run. It is a measurement, not a gate: the exit code is always 0.

    python bench/whatif.py [--only NAME…] [--workers N…] [--seconds S] [--no-advice] [--quick] [--json FILE]
    python bench/whatif.py --device [--quick] [--keep FOLDER]
    python bench/whatif.py --again FOLDER

The second form is for a machine with a GPU and many cores: image and text scripts with up to 16 workers. The
third predicts anew from recordings that --keep kept, on any machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import call, children_cpu_s, machine_cpu_s
from whatif_play import DEVICE_WORKLOADS, WORKLOADS
from zoo.truth import parse_truth

from unstarve import api
from unstarve.errors import NotPredictableError
from unstarve.model import Advice, Scenario
from unstarve.outputs import write_output
from unstarve.predict.demand import Competition
from unstarve.predict.forecast import LoaderModel, model_run
from unstarve.predict.scenario import fill_in, pace_of

PLAY = Path(__file__).with_name("whatif_play.py")
WORKERS = (0, 1, 2, 4, 8)
DEVICE_WORKERS = (0, 2, 4, 8, 16)
QUICK = ("cpu-numpy", "latency", "mixed", "tail", "handoff-bytes", "compute")
CALM_CORES = 0.3
BARS = {"median": 0.10, "p90": 0.25, "inside": 0.80}
ARGUMENTS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "in_order": "in_order",
    "persistent_workers": "persistent",
    "batch_size": "batch_size",
}


@dataclass(frozen=True)
class Measured:
    """One recorded training."""

    change: Mapping[str, Any]
    per_s: float
    """Steps, by the script's own clock."""
    neighbours: float
    """Cores that other processes used meanwhile."""
    run: Path


@dataclass(frozen=True)
class Pair:
    """A prediction and its outcome."""

    workload: str
    recorded: str
    asked: str
    predicted: float
    low: float
    high: float
    measured: float
    neighbours: float
    """Of the two runs, beside the one that had more of them."""
    beside: float
    """Predicted for the neighbours of the measured run."""

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*WORKLOADS, *DEVICE_WORKLOADS])
    parser.add_argument("--workers", nargs="+", type=int, metavar="N")
    parser.add_argument("--device", action="store_true", help="image and text scripts, up to 16 workers")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the recordings there")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="use kept recordings, train nothing")
    parser.add_argument("--seconds", type=float, metavar="S", help="of every training (2.5; 5 on a device)")
    parser.add_argument("--no-advice", action="store_true", help="leave out the second table")
    parser.add_argument("--quick", action="store_true", help="few workloads, up to 4 workers, no advice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every pair")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 5.0 if arguments.device else 2.5
    kept = {} if arguments.again is None else kept_runs(arguments.again)
    known = sorted({one.change["num_workers"] for runs in kept.values() for one in runs})
    asked = known or list(DEVICE_WORKERS if arguments.device else WORKERS)
    counts = [n for n in arguments.workers or asked if n <= 4 or not arguments.quick]
    some = tuple(DEVICE_WORKLOADS) if arguments.device else QUICK if arguments.quick else tuple(WORKLOADS)
    names = arguments.only or tuple(kept) or some
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    print("error of predicted throughput: from a recording with N workers (rows) to others (columns);")
    print("✗ marks measurements outside the interval\n")
    print(f"{'workload':18}{'from':>5}" + "".join(f"{count:>9}" for count in counts) + f"{'neighbours':>13}")
    pairs: list[Pair] = []
    promised: list[Pair] = []
    with tempfile.TemporaryDirectory(prefix="whatif-") as place:
        os.environ["WHATIF_DATA"] = place
        folder = arguments.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for name in names:
                runs = kept.get(name) or trained(name, counts, arguments, folder)
                pairs += compared(name, runs, counts)
                if not (arguments.quick or arguments.no_advice or arguments.device or kept):
                    promised += list(followed(name, runs, arguments.seconds, folder))
        except KeyboardInterrupt:
            print("interrupted")
    print_summary("throughput", pairs)
    print_promises(promised)
    if arguments.json:
        found = {"pairs": pairs, "promised": promised}
        plain = {name: [dataclasses.asdict(one) for one in found[name]] for name in found}
        write_output(arguments.json, json.dumps(plain))


def trained(name: str, counts: Sequence[int], arguments: argparse.Namespace, folder: Path) -> list[Measured]:
    """Record one training after the other; with --keep, a time limit loses none that has ended."""
    runs: list[Measured] = []
    for count in counts:
        one = train(name, {"num_workers": count}, arguments.seconds, folder)
        runs += [] if one is None else [one]
        if arguments.keep is not None:
            keep(name, runs, folder)
    return runs


def train(name: str, change: Mapping[str, Any], seconds: float, folder: Path) -> Measured | None:
    """Record one training; None if it did not finish."""
    run = folder / f"{name}-{time.monotonic_ns()}.unstarve"
    command = [sys.executable, "-m", "unstarve", "run", "-q", "-o", str(run), str(PLAY)]
    with tempfile.TemporaryDirectory(prefix="whatif-") as place:
        busy_s, own_s, begin = machine_cpu_s(), children_cpu_s(), time.perf_counter()
        truth = parse_truth(call([*command, name, json.dumps(change), str(seconds)], place))
        passed_s = time.perf_counter() - begin
        others_s = machine_cpu_s() - busy_s - (children_cpu_s() - own_s)
    if not truth["seconds"]:
        return None
    return Measured(change, truth["steps"] / truth["seconds"], max(others_s, 0.0) / passed_s, run)


def keep(name: str, runs: Sequence[Measured], folder: Path) -> None:
    told = [dataclasses.asdict(one) | {"run": one.run.name} for one in runs]
    write_output(folder / f"{name}.json", json.dumps(told))


def kept_runs(folder: Path) -> dict[str, list[Measured]]:
    return {
        file.stem: [Measured(**(one | {"run": folder / one["run"]})) for one in json.loads(file.read_text())]
        for file in sorted(folder.glob("*.json"))
    }


def compared(name: str, runs: Sequence[Measured], counts: Sequence[int]) -> Iterable[Pair]:
    """Predict all other recordings from each; prints a line per recording."""
    predictors = [predictor(measured) for measured in runs]
    for source, predict in zip(runs, predictors, strict=True):
        if predict is None:
            continue
        cells = dict.fromkeys(counts, f"{'–':>8} ")
        for target, known in zip(runs, predictors, strict=True):
            if target is not source and target.change["num_workers"] in cells:
                one = pair(name, source, predict, target, known)
                cells[target.change["num_workers"]] = f"{one.error:>+8.0%}{' ' if one.inside else '✗'}"
                yield one
        line = f"{name:18}{source.change['num_workers']:>5}{''.join(cells.values())}"
        print(f"{line}{source.neighbours:>7.2f} cores", flush=True)


def predictor(measured: Measured) -> LoaderModel | None:
    try:
        return model_run(api.load_run(measured.run))
    except NotPredictableError as error:
        print(error)
        return None


def pair(
    name: str, source: Measured, predict: LoaderModel, target: Measured, known: LoaderModel | None
) -> Pair:
    scenario = asked(target.change)
    forecast = predict(scenario)
    return Pair(
        name,
        json.dumps(source.change),
        json.dumps(target.change),
        forecast.steps_per_s,
        forecast.low,
        forecast.high,
        target.per_s,
        max(source.neighbours, target.neighbours),
        forecast.steps_per_s if known is None else beside(predict, scenario, known.demand.competition),
    )


def asked(change: Mapping[str, Any]) -> Scenario:
    return Scenario(**{ARGUMENTS[name]: value for name, value in change.items()})


def beside(predict: LoaderModel, scenario: Scenario, crowd: Competition) -> float:
    """Return the predicted steps per second with other neighbours than the recording had."""
    demand = dataclasses.replace(predict.demand, competition=crowd)
    played = pace_of(demand, fill_in(demand, scenario), predict.draws[0]).period_s
    return predict.recorded[0].period_s / (played * predict.demand.period_s)


def followed(name: str, runs: Sequence[Measured], seconds: float, folder: Path) -> Iterable[Pair]:
    """Compare the gain that the report promises for a change with the measured one."""
    for source in runs:
        diagnosis = api.diagnose(api.load_run(source.run))
        for advice in diagnosis.advice:
            if advice.speedup is not None and advice.change and set(advice.change) <= set(ARGUMENTS):
                promise = kept(name, source, advice, seconds, folder)
                if promise is not None:
                    yield promise
                break  # one for each recording is enough


def kept(name: str, source: Measured, advice: Advice, seconds: float, folder: Path) -> Pair | None:
    """Train before and after a change, back to back."""
    change = {**source.change, **advice.change}
    if not change.get("num_workers"):
        change = {k: v for k, v in change.items() if k in ("num_workers", "batch_size")}
    before = train(name, source.change, seconds, folder)
    after = train(name, change, seconds, folder)
    promise = advice.speedup
    if before is None or after is None or promise is None:
        return None
    neighbours = max(source.neighbours, before.neighbours, after.neighbours)
    return Pair(
        name,
        json.dumps(source.change),
        f"{advice.id}: {json.dumps(dict(advice.change))}",
        promise.predicted,
        promise.low,
        promise.high,
        after.per_s / before.per_s,
        neighbours,
        promise.predicted,
    )


def print_promises(promised: Sequence[Pair]) -> None:
    if not promised:
        return
    print(
        f"\n{'advice for':18}{'workers':>8}  {'change':52}{'promised':>18}{'measured':>10}{'neighbours':>12}"
    )
    for one in promised:
        recorded = json.loads(one.recorded)["num_workers"]
        promise = f"{one.predicted:.2f}× ({one.low:.2f}–{one.high:.2f})"
        print(
            f"{one.workload:18}{recorded:>8}  {one.asked:52}{promise:>18}{one.measured:>9.2f}×"
            f"{' ' if one.inside else '✗'}{one.neighbours:>5.2f} cores"
        )
    print_summary("gain", promised)


def print_summary(what: str, pairs: Sequence[Pair]) -> None:
    calm = [one for one in pairs if one.neighbours < CALM_CORES]
    print()
    for title, some in ((f"{what}, all", pairs), (f"{what}, both runs without neighbours", calm)):
        if some:
            print(f"{title}: {told([one.error for one in some])}, inside the interval {told_inside(some)}")
    if pairs and any(one.beside != one.predicted for one in pairs):
        errors = [one.beside / one.measured - 1 for one in pairs]
        print(f"{what}, for the neighbours of the measured run: {told(errors)}")


def told(errors: Sequence[float]) -> str:
    sizes = np.abs(errors)
    middle, most = np.median(sizes), np.percentile(sizes, 90)
    return (
        f"{len(sizes)} predictions, median error {middle:.1%} (bar ≤ {BARS['median']:.0%}), "
        f"90th percentile {most:.1%} (bar ≤ {BARS['p90']:.0%})"
    )


def told_inside(pairs: Sequence[Pair]) -> str:
    return f"{sum(one.inside for one in pairs) / len(pairs):.0%} (bar ≥ {BARS['inside']:.0%})"


if __name__ == "__main__":
    main()
