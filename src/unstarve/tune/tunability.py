"""What may be tuned of a loader without changing what training gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstarve.fixes.loader.data_loader import EngineLoader
from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.fixes.loader.engines.process_engines import why_no_ring
from unstarve.model.engine_names import ENGINES, WORKER_ENGINES
from unstarve.tune.crews import why_no_image_crew

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
    images: bool = False
    """unstarve may read the images of the dataset's image folder."""
    ring: bool = False
    """Workers may hand batches over in reused shared memory."""
    notes: tuple[str, ...] = ()

    def without_images(self, note: str) -> Tunability:
        """The same, but the user's own dataset reads the images; `note` says why."""
        return replace(self, images=False, notes=(*self.notes, note))


def tunability_of(
    loader: DataLoader[Any], *, deterministic: bool = False, images: bool = False, parts: bool = False
) -> Tunability:
    """Say what may be tuned of a loader.

    `images`: also let unstarve read an image folder if it can; `parts`: also try its hand-off.
    """
    found = _without_images(loader, deterministic=deterministic)
    if parts and found.why_not is None and found.workers and not found.between_epochs:
        no_ring = why_no_ring()
        note = () if no_ring is None else (f"did not try unstarve's hand-off (engine ring): {no_ring}",)
        found = replace(found, ring=no_ring is None, notes=(*found.notes, *note))
    if not images or found.why_not is not None or not found.workers or found.between_epochs:
        return found
    reason = why_no_image_crew(loader)
    if reason is None:
        return replace(found, images=True)
    return (
        found.without_images(f"did not try to read the images with unstarve: {reason}") if reason else found
    )


def _without_images(loader: DataLoader[Any], *, deterministic: bool) -> Tunability:
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
