"""Lab 3."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from unstarve import api
from unstarve.errors import UsageError
from unstarve.labs.lab import Fault, Given, Lab, Question
from unstarve.labs.started import started_in
from unstarve.words import times

FUNCTIONS = ("decode", "denoise", "equalize", "sharpen")
"""Of the dataset; one of them, which is drawn, takes most of its CPU time."""
_FEW, _MANY, _FAR_TOO_MANY = 5, 120, 1500
_WORKERS = 4
_FACTOR = 2


def hot_function(seed: int) -> str:
    """The function that takes most of the CPU time."""
    return random.Random(f"tune:{seed}:function").choice(FUNCTIONS)


def rounds_of(folder: Path | str) -> dict[str, int]:
    """How many rounds each function of the dataset works."""
    started = started_in(Path(folder))
    fault = started.lab.fault(started.seed)
    most = _FAR_TOO_MANY if fault is not None and fault.name == "function" else _MANY
    return {name: most if name == hot_function(started.seed) else _FEW for name in FUNCTIONS}


def _wrong_function(given: Given) -> str | None:
    name = str(given.answer).strip().removesuffix("()")
    if name not in FUNCTIONS:
        return f"{name} is none of {', '.join(FUNCTIONS)}."
    return None if name == hot_function(given.seed) else f"{name} is not the one."


def _wrong_forecast(given: Given) -> str | None:
    forecast = _steps_and_forecast(given.folder, 1)[1]
    return _too_far(given, forecast, f"recorded anew, the baseline forecasts {times(forecast, 1)}")


def _wrong_measurement(given: Given) -> str | None:
    baseline, with_workers = (_steps_and_forecast(given.folder, number)[0] for number in (1, _WORKERS))
    ratio = with_workers / baseline
    return _too_far(given, ratio, f"recorded anew, {_WORKERS} workers are {times(ratio, 1)} as fast")


def _too_far(given: Given, truth: float, found: str) -> str | None:
    try:
        answer = float(given.answer)
    except (TypeError, ValueError):
        return f"{given.answer} is not a number; write 1.8, for example."
    if truth / _FACTOR <= answer <= truth * _FACTOR:
        return None
    return f"{found}, and {answer:g} is too far from that. Was the machine busy? Then record again."


@lru_cache
def _steps_and_forecast(folder: Path, workers: int) -> tuple[float, float]:
    """Record the slow version anew: its steps per second, and the speed-up forecast for more workers."""
    with started_in(folder).original() as original:
        command = [sys.executable, "-m", "unstarve", "run", "-q", "-o", "run.unstarve", LAB.slow]
        command += ["--workers", str(workers)]
        done = subprocess.run(command, cwd=original, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{LAB.slow} failed: {done.stderr.strip().splitlines()[-1]}")
        recorded = original / "run.unstarve"
        found = api.whatif(recorded, [_WORKERS])
        forecast = next(one.speedup for one in found.curve if one.setting.workers == _WORKERS)
        return found.recorded.steps_per_s, forecast


LAB = Lab(
    name="tune",
    title="Tune it",
    goal="Find the loader setting that matters, and compare forecasts with measurements.",
    minutes=2,
    files=(
        "README.md",
        "photos.py",
        "slow_dataloader.py",
        "fast_dataloader.py",
        "functions.py",
        "analysis.md",
    ),
    edited="fast_dataloader.py",
    most_wait_share=1.0,
    faults=(
        Fault("latency", "remote", 3.0),
        Fault("startup", "startup", 1.5),
        Fault("function", "cpu", 2.0),
    ),
    questions=(
        Question(
            "forecast_4",
            f"How many times as fast as the baseline would training be with {_WORKERS} workers? Ask\n"
            "`unstarve whatif baseline.unstarve`. A number; up to twice or half as much is fine.",
            _wrong_forecast,
        ),
        Question(
            "measured_4",
            f"How many times as fast as the baseline is it with {_WORKERS} workers? Ask\n"
            "`unstarve compare baseline.unstarve workers4.unstarve`. The same tolerance.",
            _wrong_measurement,
        ),
        Question(
            "hot_function",
            f"Which function of the dataset takes most of its CPU time: {', '.join(FUNCTIONS)}?",
            _wrong_function,
        ),
    ),
    hints=(
        "Read the verdict on the baseline first. `remote`: workers that wait need no cores. `startup`: each "
        "epoch restarts its workers. `cpu`: there are only so many cores.",
        "prefetch_factor smooths, it does not speed up: if workers are too slow on average, a longer queue "
        "is empty just as soon.",
        "`python functions.py` measures without training: first the settings, then the functions of a "
        "sample, the most expensive first. The page of `unstarve run --html` has them, too.",
        "If one function takes the time, read it: what does not depend on the image need not be computed for "
        "each. Or keep the samples: `unstarve.CachedDataset` in `unstarve.DataLoader`.",
    ),
)
