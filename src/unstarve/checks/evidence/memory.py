"""Memory that grows while a training runs, told apart: copied on write, cached, leaked, kept batches."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from unstarve.analyze.memory_growth import allocated, common_trend, copied, growth_in, readings_of, trend_in
from unstarve.checks.evidence.kept import kept_batches
from unstarve.checks.evidence.memory_scene import MemoryScene, matters, memory_scenes
from unstarve.model import Diagnosis, Process, Run, Trend
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.model.memory_looks import AllocationSite
from unstarve.words import amount, size, size_rate

_LEAST_COPIED = 8_000_000
"""Bytes in one worker. Any forked worker copies a few megabytes of the interpreter and of torch."""
_LEAST_COPIED_SHARE = 0.25
"""Of the container that is said to be copied: less may have another cause."""
_FEWEST_LOOKS = 4
_LARGEST_JUMP = 0.6
"""Of all that was copied. The garbage collector copies much at once; reading samples copies bit by bit."""
_CACHE_FITS = 0.25
"""Of the free memory: a cache that will hold every sample and needs less is welcome."""
_SITE_SHARE = 0.3
"""Of the growth while allocations were traced: a line with less does not explain it."""
_PLURALS = {"str": "strings", "tuple": "tuples", "dict": "dicts", "list": "lists", "int": "integers"}


def memory_growth(run: Run, _diagnosis: Diagnosis) -> Iterable[Finding]:
    """The findings for all loaders; the ranks of a training share theirs."""
    found: dict[tuple[str, str | None], Finding] = {}
    for scene in memory_scenes(run):
        for one in _growth_at(scene, run):
            found.setdefault((one.id, one.where), one)
    return list(found.values())


def _growth_at(scene: MemoryScene, run: Run) -> Iterator[Finding]:
    if scene.workers:
        yield from _copied_on_write(scene)
    kept = list(kept_batches(scene))
    yield from kept
    cache = _growing_cache(scene)
    if cache is not None:
        yield from _too_large(scene, *cache)
    elif not (kept and not scene.workers):
        yield from _leak(scene, scene.makers, run)
    if scene.workers and scene.loader is scene.training.loaders[0]:  # what training leaks is told once
        yield from _leak(scene, [scene.training], run)


def _copied_on_write(scene: MemoryScene) -> Iterator[Finding]:
    facts = scene.loader.dataset
    candidate, count = facts.get("container_bytes"), facts.get("container_count")
    if not isinstance(candidate, int) or not isinstance(count, int):
        return
    amounts = [(_copied_bit_by_bit(worker), worker) for worker in scene.workers]
    enough = max(_LEAST_COPIED, _LEAST_COPIED_SHARE * candidate)
    copies = [(nbytes, worker) for nbytes, worker in amounts if nbytes is not None and nbytes >= enough]
    judged = sum(nbytes is not None for nbytes, _ in amounts)
    if not copies or 2 * len(copies) <= judged:
        return
    nbytes, worker = max(copies, key=lambda one: one[0])
    looks = worker.memory.looks
    per_s = nbytes / max((looks[-1].at_ns - looks[0].at_ns) / 1e9, 1e-3)
    items = _PLURALS.get(str(facts.get("container_items")), f"{facts.get('container_items')} objects")
    what = f"{scene.named(str(facts.get('container')))}, a {facts.get('container_kind')} of "
    message = (
        f"{what}{amount(count)} {items} ({size(candidate)}), is copied into {scene.each}: "
        f"{size(nbytes)} so far, {size_rate(per_s)}, while the workers allocate little."
    )
    name = scene.dataset
    fix = f"import unstarve\n\n{name if name.isidentifier() else 'dataset'} = unstarve.share({name})"
    harm = scene.at_once * candidate / scene.free_bytes if scene.free_bytes else 0.0
    yield _at(scene, "copy-on-write", message, fix, harm)


def _copied_bit_by_bit(worker: Process) -> float | None:
    """Bytes that a worker has copied since its first look, if it did so bit by bit; None if unknown."""
    series = [value for _, value in readings_of(worker, copied)]
    if len(series) < _FEWEST_LOOKS:
        return None
    total = max(series) - series[0]
    steps = [later - earlier for earlier, later in pairwise(series)]
    return total if max(steps) <= _LARGEST_JUMP * total else 0.0


def _growing_cache(scene: MemoryScene) -> tuple[Trend, str, Trend] | None:
    """The growth of memory that a container of the dataset explains, the container's name and its growth."""
    growth = _growth_of(scene.makers)
    if growth is None or not _matters(growth, scene, scene.makers):
        return None
    names = {name for maker in scene.makers for one in maker.memory.sizes[-1:] for name in one.sizes}
    trends = {n: common_trend(trend_in(maker, _entries(maker, n)) for maker in scene.makers) for n in names}
    growing = {name: trend for name, trend in trends.items() if trend is not None and trend.lasting}
    if not growing:
        return None
    name = max(growing, key=lambda one: growing[one].per_s)
    return growth, name, growing[name]


def _too_large(scene: MemoryScene, growth: Trend, name: str, entries: Trend) -> Iterator[Finding]:
    """A cache that holds more entries than there are samples, or that will hold all and not fit."""
    per_entry = growth.per_s / entries.per_s
    length, forecast = scene.loader.dataset.get("length"), ""
    if isinstance(length, int) and entries.last <= length:
        full = per_entry * length * max(scene.at_once, 1)
        if scene.free_bytes is not None and full < _CACHE_FITS * scene.free_bytes:
            return
        forecast = f" With all {amount(length)} samples in it, {scene.each} needs {size(per_entry * length)}."
    called, dataset = scene.named(name), scene.dataset
    message = (
        f"{called} has {amount(entries.last)} entries in {scene.each} and gains {amount(entries.per_s)} "
        f"a second; memory grows with it by {size_rate(growth.per_s)}.{forecast}"
    )
    fix = (
        f"# limit {called}, or remove it and keep one copy for all workers\n"
        f"{dataset if dataset.isidentifier() else 'dataset'} = unstarve.CachedDataset({dataset})"
    )
    yield _at(scene, "growing-cache", message, fix, _harm(growth, scene))


def _entries(maker: Process, name: str) -> list[tuple[int, float]]:
    """Entries of a container at the times the process was looked at: only changes were written down."""
    sizes, points, place = maker.memory.sizes, list[tuple[int, float]](), 0
    for look in maker.memory.looks:
        while place + 1 < len(sizes) and sizes[place + 1].at_ns <= look.at_ns:
            place += 1
        if sizes and sizes[place].at_ns <= look.at_ns and name in sizes[place].sizes:
            points.append((look.at_ns, float(sizes[place].sizes[name])))
    return points


def _leak(scene: MemoryScene, processes: Sequence[Process], run: Run) -> Iterator[Finding]:
    growth = _growth_of(processes)
    if growth is None or not _matters(growth, scene, processes):
        return
    who = scene.each if processes[0].worker else "the training process"
    message = f"The memory of {who} grows by {size_rate(growth.per_s, growth.low, growth.high)}"
    if growth.per_batch is not None:
        message += f", {size(growth.per_batch)} a batch"
    message += "."
    blocks = common_trend(growth_in(p, lambda look: look.blocks) for p in processes)
    if blocks is not None and blocks.lasting:
        message += " Python objects hold it: their number grows, too."
    site = _site(processes, growth)
    file, line = scene.place
    if site is not None:
        file, line = site.file, site.line
        message += f" {file}:{line} allocated {size(site.nbytes)} that stayed."
        fix = f"Look at {file}:{line}: something keeps the objects that it creates."
    elif any(process.memory.traced_s for process in processes):
        fix = "No line of Python allocates it. Look for a C library or tensors that are kept."
    else:
        fix = f"unstarve run --memory {shlex.join(run.command)}  # names the lines that allocate it"
    yield finding("memory-leak", message, fix, file=file, line=line, harm=_harm(growth, scene))


def _site(processes: Sequence[Process], growth: Trend) -> AllocationSite | None:
    """The line that explains most of the growth, if one does."""
    shares = [
        (site.nbytes / (process.memory.traced_s * growth.per_s), site)
        for process in processes
        for site in process.memory.sites[:1]
        if process.memory.traced_s > 0
    ]
    share, site = max(shares, key=lambda one: one[0], default=(0.0, None))
    return site if share >= _SITE_SHARE else None


def _growth_of(processes: Sequence[Process]) -> Trend | None:
    """How the memory of one of the processes grows to the end; None if it does not."""
    growth = common_trend(growth_in(process, allocated) for process in processes)
    return growth if growth is not None and growth.lasting else None


def _matters(growth: Trend, scene: MemoryScene, processes: Sequence[Process]) -> bool:
    count = scene.at_once if processes[0].worker else 1
    first = growth.last - growth.grown
    return matters(growth.grown * count, growth.low * count, first * count, scene.free_bytes)


def _harm(growth: Trend, scene: MemoryScene) -> float:
    """Part of the free memory that an hour takes."""
    return min(growth.per_s * 3600 / scene.free_bytes, 1.0) if scene.free_bytes else 0.0


def _at(scene: MemoryScene, check: str, message: str, fix: str, harm: float) -> Finding:
    file, line = scene.place
    return finding(check, message, fix, file=file, line=line, harm=harm)
