"""Batches that stay in memory after their step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unstarve.analyze.memory_growth import allocated, growth_in
from unstarve.checks.evidence.memory_scene import MemoryScene
from unstarve.model import Trend
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.model.memory_looks import KeptTensor
from unstarve.words import amount, size, size_rate

_FEWEST_KEPT = 5
_LEAST_KEPT_SHARE = 0.05
"""Of the batches that were watched."""


def kept_batches(scene: MemoryScene) -> Iterator[Finding]:
    """Whether the batches of a loader stay in memory."""
    own = [one for one in scene.training.memory.kept if one.loader == scene.loader.id]
    if own:
        shm = growth_in(scene.training, lambda look: look.shm_bytes)
        descriptors = growth_in(scene.training, lambda look: look.descriptors)
        grows = growth_text(shm, descriptors, growth_in(scene.training, allocated))
        file, line = scene.place
        yield from kept_findings(
            scene.loader.name, own, grows, from_workers=bool(scene.workers), file=file, line=line
        )


def growth_text(shm: Trend | None, descriptors: Trend | None, memory: Trend | None = None) -> str | None:
    """What grows to the end, the first of them; None if nothing does: then what is kept was always there."""
    if shm is not None and shm.lasting:
        return f"/dev/shm grows by {size_rate(shm.per_s)}"
    if descriptors is not None and descriptors.lasting:
        return f"{amount(descriptors.grown)} more descriptors are open than at first"
    if memory is not None and memory.lasting:
        return f"The process grows by {size_rate(memory.per_s)}"
    return None


def kept_findings(
    loader: str,
    parts: Sequence[KeptTensor],
    grows: str | None,
    *,
    from_workers: bool,
    file: str | None = None,
    line: int | None = None,
) -> Iterator[Finding]:
    """What is to say about the parts of a loader's batches that were watched."""
    kept = [one for one in parts if one.kept >= max(_FEWEST_KEPT, _LEAST_KEPT_SHARE * one.watched)]
    if not kept or grows is None:
        return
    most = max(kept, key=lambda one: one.kept * one.nbytes)
    message = (
        f"{' and '.join(one.part for one in kept)} of {loader} {'stay' if len(kept) > 1 else 'stays'} in "
        f"memory: of {most.watched} batches that were watched, {most.kept} were still there many steps "
        f"later ({size(sum(one.nbytes for one in kept))} each). {grows}."
    )
    if from_workers:
        fix = f"Keep a copy instead of the batch's own memory: kept.append({most.part}.clone())"
    else:
        fix = f"Keep only what you need later, a number for example: kept.append({most.part}.mean().item())"
    yield finding("kept-batches", message, fix, file=file, line=line, harm=0.5)
