"""Lab 11."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Given, Lab, Question
from unstarve.words import size

_KINDS = (
    "worker-timeout",
    "fork-after-threads",
    "out-of-memory",
    "growing-cache",
    "kept-batches",
    "shared-memory",
    "workers-each-epoch",
    "none",
)
_SCRIPTS = ("a.py", "b.py", "c.py", "d.py")
_EPOCHS = 3
_LONGEST_S = 40
_SAMPLES = 256
_MOST_GROWN = 20_000_000
"""Bytes. In two epochs the faults add 32 MB or more, and a healthy training less than 10 MB."""


def drawn_kinds(seed: int) -> dict[str, str]:
    """What is wrong with each script."""
    kinds = random.Random(f"when-it-breaks:{seed}").sample(_KINDS, len(_SCRIPTS))
    return dict(zip(_SCRIPTS, kinds, strict=True))


def _drawn_files(seed: int) -> dict[str, str]:
    return {script: f"family/{kind}.py" for script, kind in drawn_kinds(seed).items()}


def trouble(told: dict[str, Any]) -> str | None:
    """What is still wrong with a training, by what the harness tells."""
    if len(told["epochs"]) != _EPOCHS or any(sorted(one) != list(range(_SAMPLES)) for one in told["epochs"]):
        return "does not train on every sample once per epoch."
    if told["restarts_workers"]:
        return "restarts its workers in every epoch."
    if told["grown_bytes"] > _MOST_GROWN:
        return f"holds {size(told['grown_bytes'])} more at the end than after its first epoch."
    return None


def _wrong(given: Given) -> str | None:
    said = given.answer if isinstance(given.answer, list) else str(given.answer).replace(",", " ").split()
    truth = drawn_kinds(given.seed)
    unknown = [str(one) for one in said if one not in _KINDS]
    if unknown or len(said) != len(truth):
        return f"name one of {', '.join(_KINDS)} for each of {', '.join(_SCRIPTS)}."
    right = sum(a == b for a, b in zip(said, truth.values(), strict=True))
    if right < len(truth):
        return f"{right} of {len(truth)} are right."
    return " ".join(_still_broken(given.folder, truth)) or None


def _still_broken(folder: Path, truth: dict[str, str]) -> Iterator[str]:
    for script, kind in truth.items():
        if kind == "none":
            if (folder / script).read_bytes() != (LAB.folder / f"family/{kind}.py").read_bytes():
                yield f"Nothing was wrong with {script}: leave it as it was."
            continue
        told = told_by("unstarve.labs.break_harness", folder / script, _EPOCHS, _LONGEST_S)
        found = told if isinstance(told, str) else trouble(told)
        if found is not None:
            sentence = found if isinstance(told, str) else f"{script} {found}"
            yield sentence.removesuffix(".") + "."


LAB = Lab(
    name="when-it-breaks",
    title="When it breaks",
    goal="Find out what is wrong with four trainings, and fix them.",
    minutes=2,
    files=("README.md",),
    drawn_files=_drawn_files,
    questions=(
        Question(
            "causes",
            "What is wrong with a.py, b.py, c.py and d.py, in this order? A list of four, such as\n"
            '["none", "kept-batches", "worker-timeout", "growing-cache"]. Each is one of:\n'
            '  "worker-timeout"      one sample takes longer than the loader waits\n'
            '  "fork-after-threads"  workers wait for a thread that they do not have\n'
            '  "out-of-memory"       a process needs more memory than it may have\n'
            '  "growing-cache"       the dataset holds more with every sample\n'
            '  "kept-batches"        training holds every batch, in shared memory\n'
            '  "shared-memory"       the batches in flight do not fit into /dev/shm\n'
            '  "workers-each-epoch"  every epoch begins as slowly as the first\n'
            '  "none"                nothing',
            _wrong,
        ),
    ),
    hints=(
        "Run each script as the README says and read the part `health` of the report. Four of the faults "
        "make a script fail or hang; the others only make it slow or large.",
        "A worker that waits: the report names the line and the sample. What else may a request be given? "
        "And which threads does a process have after a fork? `unstarve check a.py` knows before the run.",
        "A table that does not fit: `np.load(path, mmap_mode='r')` reads only the rows that are used.",
        "A tensor that came from a worker, and every view of it, keeps the whole batch in shared memory. "
        "Keep a copy: `batch[0].clone()`. What the dataset does not need, it should not hold at all.",
        "A bus error in the first epoch: how large is a batch, and how many are there at a time? Each worker "
        "works prefetch_factor batches ahead, and has 2 unless you say otherwise.",
        "Workers that stay from epoch to epoch: `DataLoader(…, persistent_workers=True)`.",
    ),
)
