"""Lab 10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Fault, Given, Lab, Question
from unstarve.words import mean_count, times

_EPOCHS = 3
_MOST_WORK = 1.5
"""How many times the work of the quickest rank a rank may have."""
_EDITED = "fast_ranks.py"

Delivered = Sequence[Sequence[Sequence[int]]]
"""Indices of the samples that arrived, by rank and epoch."""


def troubles(delivered: Delivered, seconds: Sequence[float]) -> Iterator[str]:
    """What is wrong with what ranks got, one sentence each; `seconds` is the time that each sample takes."""
    if any(index < 0 for rank in delivered for epoch in rank for index in epoch):
        yield "Ranks get samples that are not in the dataset."
        return
    for epoch, by_rank in enumerate(zip(*delivered, strict=True)):
        shared = max(len(set(a) & set(b)) for a, b in combinations(by_rank, 2))
        if shared >= len(delivered):  # a DistributedSampler repeats fewer, to make ranks even
            yield f"In epoch {epoch}, two ranks get the same {mean_count(shared)} samples."
            return
        counts = [len(one) for one in by_rank]
        if len(set(counts)) > 1:
            yield (
                f"In epoch {epoch}, one rank gets {mean_count(min(counts))} samples and another "
                f"{mean_count(max(counts))}."
            )
            return
        missing = len(seconds) - len(set().union(*by_rank))
        if missing or sum(counts) >= len(seconds) + len(delivered):
            yield f"In epoch {epoch}, {mean_count(missing)} samples are missing, or some come twice."
            return
    if any(list(a) == list(b) for rank in delivered for a, b in combinations(rank, 2)):
        yield "A rank gets its samples in the same order in two epochs."
    work = [sum(seconds[index] for epoch in rank for index in epoch) for rank in delivered]
    if max(work) > _MOST_WORK * min(work):
        yield (
            f"Loading takes one rank {times(max(work) / min(work))} as long as another, and the other "
            f"waits for it in every step. The goal is less than {times(_MOST_WORK)}."
        )


def _trial(folder: Path, seed: int) -> tuple[bool, tuple[str, ...]]:
    fault = LAB.fault(seed)
    untouched = (folder / _EDITED).read_bytes() == (LAB.folder / _EDITED).read_bytes()
    if fault is not None and fault.name == "none":
        if untouched:
            return True, ("Right: the ranks get the right samples, and there is nothing to fix.",)
        return False, (f"Nothing is wrong with the samples of the ranks: leave {_EDITED} as it was.",)
    from unstarve.labs.ranks import SAMPLES, latencies  # needs torch

    told = told_by("unstarve.labs.rank_harness", folder / _EDITED, _EPOCHS)
    if isinstance(told, str):
        return False, (told,)
    found = tuple(troubles(told["delivered"], latencies(folder, SAMPLES)))
    return not found, found or (
        "With your version every sample reaches one rank once per epoch, in a new order, and all ranks have "
        "equally much to load.",
    )


def _slow_rank(given: Given) -> str | None:
    from unstarve.labs.ranks import slow_rank  # needs torch

    slow = slow_rank(given.folder)
    truth = "none" if slow is None else str(slow)
    if str(given.answer).strip().lower() == truth:
        return None
    return "this is not what by_rank.py shows for slow.unstarve. Look at the wait for a batch."


LAB = Lab(
    name="many-ranks",
    title="Many ranks",
    goal="Find out whether two ranks get the right samples, and fix it if they do not.",
    minutes=1,
    files=(
        "README.md",
        "rank_training.py",
        "slow_ranks.py",
        "fast_ranks.py",
        "by_rank.py",
        "profile_ranks.sh",
    ),
    edited=_EDITED,
    slow="slow_ranks.py",
    faults=(
        Fault("ranks-not-split", "ranks-not-split"),
        Fault("set-epoch-missed", "set-epoch-missed"),
        Fault("uneven-ranks", "uneven-ranks"),
        Fault("straggler", "straggler"),
        Fault("none", "none"),
    ),
    verdict_text="""\
What is wrong with the samples of the ranks?
  "ranks-not-split"   all ranks train on the same samples
  "set-epoch-missed"  every epoch comes in the same order
  "uneven-ranks"      ranks have different numbers of batches
  "straggler"         one rank's samples take longer to load
  "none"              nothing
Commit it with `unstarve lab check` before you fix anything.""",
    trial=_trial,
    questions=(
        Question(
            "slow_rank",
            "In slow.unstarve, does one rank wait much longer for a batch than the other: more than 10 ms\n"
            'longer in the median? Its number, or "none".',
            _slow_rank,
        ),
    ),
    hints=(
        "Run `./profile_ranks.sh slow`. The part `health` of the report names three of the faults.",
        "A straggler is no health finding: its samples are right, but late. The headline says who came "
        "last; `python by_rank.py slow.unstarve` shows the ranks' waits for a batch.",
        "torch.utils.data.distributed.DistributedSampler(dataset) splits the samples evenly, and shuffles "
        "them again in every epoch if begin_epoch calls `loader.sampler.set_epoch(epoch)`.",
        "With shuffle=False a DistributedSampler gives rank 0 the samples 0, 2, 4, … and rank 1 the samples "
        "1, 3, 5, …. What if every other sample is slow?",
    ),
)
