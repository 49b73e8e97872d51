"""Lab 9."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from unstarve.labs.lab import Given, Lab, Question
from unstarve.labs.parts_draw import SLOTS, kinds_of
from unstarve.labs.parts_trial import trial_of
from unstarve.labs.turns import ANSWERS, contradicts

PARTS = ("cached", "prefetch", "gather", "files")
RIGHT = {
    "decoded": "cached",
    "augmented": "cached",
    "rows": "gather",
    "server": "prefetch",
    "tensors": "files",
}
_GOALS = {"decoded": 1.8, "augmented": 1.8, "rows": 2.0, "server": 2.5, "tensors": 1.5}


def _wrong_part(slot: str, given: Given) -> str | None:
    said = str(given.answer).strip().lower()
    if said not in PARTS:
        return f"choose one of {', '.join(PARTS)}."
    if said != RIGHT[kinds_of(given.seed)[slot].name]:
        return f"{said} is not the part that suits this workload best."
    return None


def _wrong_direct(state: str, given: Given) -> str | None:
    from unstarve.labs.parts_direct import direct_speedup  # needs torch

    said = str(given.answer).strip().lower()
    if said not in (*ANSWERS, "impossible"):
        return "write faster, slower, same or impossible."
    found = direct_speedup(given.folder, state)
    if isinstance(found, str):
        return None if said == "impossible" else found
    if said == "impossible" or contradicts(said, found.low, found.high):
        return (
            f"measured in turns, direct reads of {state} files are {found} as fast here. Was the disk busy? "
            "Then check again."
        )
    return None


def _trial(folder: Path, seed: int) -> tuple[bool, tuple[str, ...]]:
    return trial_of(folder, {slot: _GOALS[kind.name] for slot, kind in kinds_of(seed).items()})


LAB = Lab(
    name="faster-parts",
    title="Faster parts",
    goal="Choose the right part for each of three workloads: same samples, less time.",
    minutes=2,
    files=(
        "README.md",
        "workloads.py",
        "slow_dataloader.py",
        "fast_dataloader.py",
        "direct_io.py",
        "gpu_decoding.py",
        "dali_pipeline.py",
    ),
    edited="fast_dataloader.py",
    trial=_trial,
    questions=(
        *(
            Question(
                f"part_{slot}",
                f"Which part suits workload {slot}? One of: {', '.join(PARTS)}.",
                partial(_wrong_part, slot),
            )
            for slot in SLOTS
        ),
        *(
            Question(
                f"direct_{state}",
                f"Are direct reads of files that are {where} the page cache faster, slower or the same\n"
                "on this disk? Up to 10% is the same. `impossible` if direct_io.py says that they are not.",
                partial(_wrong_direct, state),
            )
            for state, where in (("cached", "in"), ("cold", "not in"))
        ),
    ),
    hints=(
        "`unstarve run --force slow_dataloader.py a` names the cause of the waits. Then ask two questions: "
        "is a sample needed more than once, and is it the same each time?",
        "What is needed once gains nothing from a cache: fetch it sooner (`AsyncPrefetchDataset`) or "
        "read it faster (`TensorFileDataset`). What is in memory already need not be stacked sample by "
        "sample: `unstarve.DataLoader` gathers the rows of a batch in one call.",
        "`AsyncPrefetchDataset` has two threads unless you say otherwise. A server that takes long to "
        "answer can be asked by sixteen at once.",
        "`python direct_io.py` measures direct reads. What is in memory already need not come from a disk; "
        "what is not has to, and then the disk decides.",
        "augmented: only what comes before the random part may be cached. "
        "`CachedDataset(dataset.images, transform=dataset.augment)`.",
    ),
)
