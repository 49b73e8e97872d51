"""What may be tuned of a loader without changing what training gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstarve.fixes.loader.data_loader import EngineLoader
from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.fixes.loader.engines.memory_engines import rows_in
from unstarve.fixes.loader.engines.process_engines import why_no_ring
from unstarve.model.engine_names import ENGINES, WORKER_ENGINES
from unstarve.model.parts import CACHED, GATHER, GPU_IMAGES, IMAGES, RING, THREADS
from unstarve.tune.sample_cache import why_no_cache
from unstarve.tune.thread_crews import why_no_gpu_crew, why_no_image_crew, why_no_thread_crew

_torch_get_iterator = DataLoader._get_iterator


@dataclass(frozen=True, slots=True)
class Tunability:
    """What may be tuned; `why_not` says why nothing may."""

    why_not: str | None = None
    between_epochs: bool = False
    """Settings change only between epochs."""
    workers: bool = True
    """The number of workers may change."""
    no_workers: bool = True
    """It may become 0 if the user has some."""
    several_workers: bool = True
    """It may become more than 1 if the user has at most one."""
    parts: frozenset[str] = frozenset()
    """Parts of unstarve that give the same batches."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Parts that could be of use here, and why they are left out."""
    notes: tuple[str, ...] = ()

    def without(self, part: str, note: str) -> Tunability:
        """The same, but this part is not used; `note` says why."""
        return replace(self, parts=self.parts - {part}, notes=(*self.notes, note))


def tunability_of(
    loader: DataLoader[Any], *, deterministic: bool = False, images: bool = False, parts: bool = False
) -> Tunability:
    """Say what may be tuned of a loader.

    `images`: also let unstarve read an image folder if it can; `parts`: also try all its other parts.
    """
    found = _without_parts(loader, deterministic=deterministic)
    if found.why_not is not None or not found.workers or found.between_epochs:
        return found
    reasons: dict[str, str | None] = {}  # empty: it has nothing to do with such a loader
    if parts:
        reasons[RING] = why_no_ring()
        reasons[THREADS] = why_no_thread_crew(loader)
        reasons[GATHER] = "" if isinstance(rows_in(loader), str) else None
        reasons[CACHED] = why_no_cache(loader)
    if images and parts:
        reasons[GPU_IMAGES] = why_no_gpu_crew(loader)
    if images:
        reasons[IMAGES] = why_no_image_crew(loader)
    refused = {part: reason for part, reason in reasons.items() if reason}
    usable = frozenset(part for part, reason in reasons.items() if reason is None)
    image_note = (
        (f"did not try to read the images with unstarve: {refused.pop(IMAGES)}",) if IMAGES in refused else ()
    )
    return replace(found, parts=usable, refused=refused, notes=(*found.notes, *image_note))


def _without_parts(loader: DataLoader[Any], *, deterministic: bool) -> Tunability:
    why_not = _why_not(loader) or (_why_not_deterministic(loader) if deterministic else None)
    is_iterable = isinstance(loader.dataset, IterableDataset)
    if why_not is not None:
        return Tunability(why_not)
    if deterministic:
        note = "deterministic=True: only the prefetch depth is tuned (each worker has its own random numbers)"
        return Tunability(between_epochs=is_iterable, workers=False, no_workers=False, notes=(note,))
    if is_iterable:
        return _of_iterable(loader.num_workers)
    if loader.num_workers == 0:
        return Tunability()
    if loader.worker_init_fn is not None:
        note = "at least one worker is kept, because worker_init_fn sets something up in it"
        return Tunability(no_workers=False, notes=(note,))
    if loader.timeout > 0:
        note = "at least one worker is kept, because timeout= only applies to workers"
        return Tunability(no_workers=False, notes=(note,))
    return Tunability()


def _of_iterable(own_workers: int) -> Tunability:
    notes = ["iterable dataset: settings change only between epochs"]
    if own_workers <= 1:
        notes.append("at most one worker is tried: the dataset may not split its samples among several")
    return Tunability(
        between_epochs=True,
        no_workers=own_workers == 0,
        several_workers=own_workers > 1,
        notes=tuple(notes),
    )


def _why_not(loader: DataLoader[Any]) -> str | None:
    engine = getattr(loader, "engine", None)
    if engine in ENGINES and engine not in WORKER_ENGINES:
        return f"engine {engine!r} makes batches without workers"
    kind = type(loader)
    own_iter = kind.__iter__ is not DataLoader.__iter__ and not isinstance(loader, EngineLoader)
    if own_iter or kind._get_iterator is not _torch_get_iterator:
        return f"{kind.__name__} has its own way of iterating"
    if _is_datapipe(loader.dataset):
        return "the dataset is a datapipe, whose workers share state"
    return None


def _why_not_deterministic(loader: DataLoader[Any]) -> str | None:
    if loader.num_workers == 0:
        return "deterministic=True leaves only the prefetch depth to tune, and there are no workers"
    if isinstance(loader.dataset, IterableDataset):
        return None
    if settled_batches(loader.batch_sampler) == 0:
        return (
            "deterministic=True needs a known sampler: this one's random draws may depend on how far ahead "
            "it is asked"
        )
    return None


def _is_datapipe(dataset: Any) -> bool:
    """By name, because newer versions of torch have no datapipes."""
    return any(cls.__name__ in ("IterDataPipe", "MapDataPipe") for cls in type(dataset).__mro__)
