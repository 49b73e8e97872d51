"""Run a version of the learner's, and say how long it took and whether it computes what the original does.

    python -m unstarve.labs.versions FILE CALLS

FILE defines ``make(folder)``, which returns a function from a number to a tensor. It is called with numbers
that nobody knew before, CALLS times and until there is enough to measure; then as many results, picked at
random, are compared with the original's. Making is not in time.
Prints one line of JSON: seconds of a call, samples, and a digest that is the same for the same results.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import time
from pathlib import Path

import torch

from unstarve.labs.harness import imported
from unstarve.labs.lab import RESULT_MARK
from unstarve.labs.started import started_in

_SECONDS_A_CALL = 0.25
"""Calls go on until each of those asked for had this much time."""
_NUMBERS = 1 << 30


def main() -> None:
    """Run what the command line says."""
    file, calls = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    torch.set_num_threads(1)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    version = imported(file).make(file.parent)
    version(secrets.randbelow(_NUMBERS))  # allocate, fill caches
    results: dict[int, torch.Tensor] = {}
    seconds: list[float] = []
    while len(seconds) < calls or sum(seconds) < calls * _SECONDS_A_CALL:
        number = secrets.randbelow(_NUMBERS)
        began = time.perf_counter()
        results[number] = version(number)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    chosen = {number: results[number] for number in random.sample(sorted(results), min(calls, len(results)))}
    result = {
        "seconds": sorted(seconds)[len(seconds) // 4],  # others on the machine can only make a call slower
        "samples": len(chosen),
        "digest": "same" if _same(chosen, file.parent) else "different",
    }
    print(RESULT_MARK + json.dumps(result), flush=True)


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


if __name__ == "__main__":
    main()
