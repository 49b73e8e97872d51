"""The last seconds of a loader's events → what it delivers now, and what its workers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from unstarve.analyze.blame import total
from unstarve.analyze.live_workers import Window, overlap_s, parts_of, worker_now
from unstarve.model import Batch, Loader, LoaderNow, Process

_LATE = 2.0
"""So many usual steps without a batch count as slower steps."""


def loader_now(
    loader: Loader,
    process: Process,
    batches: Sequence[Batch],
    window: Window,
    delivered: Mapping[int, int],
    crew: Sequence[tuple[int, Process]],
) -> LoaderNow:
    """A loader of a training process; `batches` are its own, `delivered` counts all of each loader so far.

    `crew` are its workers, with their places.
    """
    recent = [b for b in batches if b.got_ns > window.begin_ns]
    steps_per_s = _rate([b.got_ns for b in batches], window)
    sizes = [b.size for b in recent or batches[-1:]]
    ready = [b.ready for b in recent if b.ready is not None]
    workers_now = tuple(worker_now(place, worker, window) for place, worker in crew)
    own = [w for w in process.works if w.loader == loader.id and w.done_ns > window.begin_ns]
    parts = total([*(w.parts for w in workers_now), parts_of(own, window, in_worker=False)])
    spent = sum(parts.values())
    waited_s = sum(overlap_s(b.ask_ns, b.got_ns, window) for b in recent)
    config = loader.config
    workers, depth = config.get("num_workers"), config.get("prefetch_factor")
    return LoaderNow(
        id=loader.id,
        name=loader.name,
        where=loader.where,
        epoch=batches[-1].epoch if batches else None,
        position=batches[-1].position if batches else None,
        steps=delivered.get(loader.id, 0),
        steps_per_s=steps_per_s,
        samples_per_s=_times(steps_per_s, sizes),
        wait_share=None if not window.seconds else waited_s / window.seconds,
        queue_depth=fmean(ready) if ready else None,
        queue_room=workers * depth if isinstance(workers, int) and isinstance(depth, int) else None,
        parts={cause: part / spent for cause, part in parts.items() if part > 0},
        workers=workers_now,
    )


def _rate(gots_ns: Sequence[int], window: Window) -> float | None:
    """Batches a second; of slow steps by the last two, and slower still while the next one is late."""
    recent = [at for at in gots_ns if at > window.begin_ns]
    recent = recent if len(recent) > 1 else list(gots_ns[-2:])
    if len(recent) < 2 or recent[-1] <= recent[0]:
        return None
    usual_ns = (recent[-1] - recent[0]) / (len(recent) - 1)
    late_ns = window.end_ns - recent[-1]
    if late_ns < _LATE * usual_ns:
        return 1e9 / usual_ns
    if late_ns >= window.end_ns - window.begin_ns:
        return 0.0
    return len(recent) / (window.end_ns - recent[0]) * 1e9


def _times(steps_per_s: float | None, sizes: Sequence[int | None]) -> float | None:
    """Samples a second; None where the size of a batch is not known."""
    known = [size for size in sizes if size is not None]
    return steps_per_s * fmean(known) if steps_per_s is not None and 0 < len(known) == len(sizes) else None
