"""Run a version of the learner's, and say how long it took and whether it computes what the original does.

The file defines ``make(folder)``, which returns a function from a number to a tensor. It is called with
numbers that nobody knew before, often enough to measure; then some results, picked at random, are compared
with the original's. Making is not in time.
"""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from time import perf_counter  # this one, whatever the file makes of the module
from typing import Any

import torch

from unstarve.labs.harness import imported
from unstarve.labs.started import started_in

_SECONDS_A_CALL = 0.17
"""Calls go on until each of those asked for had this much time."""
_COMPARED = 4
_NUMBERS = 1 << 30


def run(file: Path, calls: int, _step_rounds: int | None = None) -> dict[str, Any]:
    """Seconds of a call, samples, and a digest that is the same for the same results."""
    clock = perf_counter  # and whatever it makes of this module
    version = imported(file).make(file.parent)
    version(secrets.randbelow(_NUMBERS))  # allocate, fill caches
    results: dict[int, torch.Tensor] = {}
    seconds: list[float] = []
    while len(seconds) < calls or sum(seconds) < calls * _SECONDS_A_CALL:
        number = secrets.randbelow(_NUMBERS)
        began = clock()
        results[number] = version(number)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(clock() - began)
    some = random.sample(sorted(results), min(calls, _COMPARED, len(results)))
    chosen = {number: results[number] for number in some}
    return {
        "seconds": sorted(seconds)[len(seconds) // 4],  # others on the machine can only make a call slower
        "samples": len(chosen),
        "digest": "same" if _same(chosen, file.parent) else "different",
    }


def _same(results: dict[int, torch.Tensor], folder: Path) -> bool:
    lab = started_in(folder).lab
    original = imported(lab.folder / lab.slow).make(folder)
    for number, got in results.items():
        wanted = original(number)
        if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            return False
        if not torch.allclose(got.cpu(), wanted.cpu(), rtol=1e-4, atol=1e-4):
            return False
    return True
