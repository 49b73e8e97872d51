"""Lab 6."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Fault, Given, Lab, Question
from unstarve.labs.started import started_in
from unstarve.words import counted, percent, size

_HARNESS = "unstarve.labs.memory_harness"
_EPOCHS = 10
_SETTLED = 1
"""Epochs after which nothing grows any more but a leak."""
_NOISE = 0.4
"""Share of the leak that allocators may seem to keep without one."""
_LEAST_USED = 0.6
"""Share of the memory that the largest batch has to use."""


def trial(folder: Path, _seed: int) -> tuple[bool, tuple[str, ...]]:
    """Train with the version that came with the lab and with the learner's, and compare."""
    from unstarve.labs.leaks import drawn  # needs torch

    draw = drawn(folder)
    if draw.leak == "none":
        if started_in(folder).is_untouched():
            return True, ("Right: nothing leaks, and there is nothing to fix.",)
        return False, ("Nothing leaks: leave fixed_training.py as it was.",)
    with started_in(folder).original() as original:
        leaky = told_by(_HARNESS, original / "leaky_training.py", _EPOCHS)
    fixed = told_by(_HARNESS, folder / "fixed_training.py", _EPOCHS)
    if isinstance(leaky, str):
        return False, (leaky,)
    if isinstance(fixed, str):
        return False, (fixed,)
    kept = kept_a_step(fixed["held_bytes"], len(leaky["losses"]))
    missing = list(_missing(leaky, fixed))
    if kept > _NOISE * draw.kept_bytes:
        missing.append("So it still leaks.")
    return not missing, (f"Your version keeps {size(max(kept, 0))} of every step.", *missing)


def kept_a_step(held_bytes: Sequence[int], steps: int) -> float:
    """Bytes by which memory grows with a step, once the caches are full; medians, since allocators jump."""
    settled = held_bytes[_SETTLED:]
    third = max(len(settled) // 3, 1)
    grown = statistics.median(settled[-third:]) - statistics.median(settled[:third])
    return grown / (len(settled) - third) / (steps / len(held_bytes))


def _missing(leaky: dict[str, Any], fixed: dict[str, Any]) -> Iterator[str]:
    """What the learner's version no longer does."""
    same = len(leaky["losses"]) == len(fixed["losses"]) and all(
        math.isclose(a, b, rel_tol=1e-3) for a, b in zip(leaky["losses"], fixed["losses"], strict=True)
    )
    if not same:
        yield "But self.losses does not have the same loss of every step."
    if leaky["recent"] != fixed["recent"]:
        yield "But self.recent does not have the last two batches."
    if fixed["decoded"] > 2 * leaky["decoded"]:
        yield f"But samples were decoded {counted(fixed['decoded'], 'time')}: the cache is gone."


def _wrong_kept(given: Given) -> str | None:
    from unstarve.labs.leaks import drawn  # needs torch

    said, kept = given.number(), drawn(given.folder).kept_bytes / 1e6
    if said is None:
        return "write a number of megabytes."
    if kept * 2 / 3 - 0.2 <= said <= kept * 2 + 0.2:  # a process grows by more than what is kept
        return None
    return f"{given.answer} MB is not what every step keeps; measure from the second epoch on."


def _wrong_batch(given: Given) -> str | None:
    from unstarve.labs.leaks import drawn  # needs torch

    said, draw = given.number(), drawn(given.folder)
    if said is None or said != int(said) or said < 1:
        return "write a number of samples."
    limit = size(draw.limit_bytes)
    if said * draw.wide * 4 > draw.limit_bytes:  # its widest layer alone; such a batch is better not tried
        return f"a batch of {int(said)} does not fit into {limit}."
    told = told_by(_HARNESS, given.folder, int(said))
    if isinstance(told, str):
        return told
    used = told["peak_bytes"] / draw.limit_bytes
    if used > 1:
        return f"a batch of {int(said)} needs {size(told['peak_bytes'])}, which is more than {limit}."
    if used < _LEAST_USED:
        return f"a batch of {int(said)} uses only {percent(used)} of {limit}."
    return None


LAB = Lab(
    name="memory-profiling",
    title="Memory",
    goal="Find out whether a training leaks memory and where, stop it, and choose the batch size that fits.",
    minutes=2,
    files=("README.md", "leaky_training.py", "fixed_training.py", "choose_batch.py", "analysis.md"),
    edited="fixed_training.py",
    faults=tuple(Fault(leak, leak) for leak in ("losses", "batches", "cache", "none")),
    verdict_text="""\
Which part leaks: losses (the history of losses), batches (the recent batches), cache (the dataset's),
or none? Commit it with `unstarve lab check` before you fix anything.""",
    trial=trial,
    hints=(
        "Run `python leaky_training.py`. Memory that is kept in the first epoch may be a cache that fills. "
        "What is kept in the last epoch as well is a leak.",
        "Profile 4 steps, then 12, as the README says. The peak of tensors grows with the window only if "
        "tensors are kept.",
        "If the process grows and its tensors do not, something else is kept: the cache holds NumPy arrays.",
        "If tensors are kept, divide the growth of the peak by the 8 steps between both windows. As much as "
        "a batch? Or a batch and the activations of the model?",
        "A loss that is kept with its graph keeps every activation: keep `loss.item()`. A list that should "
        "forget is `collections.deque(maxlen=2)` with `append`. A cache that ends is "
        "`unstarve.CachedDataset(SampleDataset(folder))`.",
    ),
    questions=(
        Question(
            "kept_mb",
            "How many megabytes does training keep of every step, from the second epoch on? 0 if nothing\n"
            "leaks. From two thirds to twice as much is fine: a process may grow by more than what is kept.",
            _wrong_kept,
        ),
        Question(
            "batch_size",
            "The largest batch whose step fits into the memory that choose_batch.py prints. Your answer is\n"
            "tried: it has to fit, and to use at least 60% of that memory.",
            _wrong_batch,
        ),
    ),
)
