"""What of a loader may be tuned at all: what training gets must stay what the user asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.model.engines import ENGINES, WORKER_ENGINES
from unstarve.tune import images

_torch_get_iterator = DataLoader._get_iterator


@dataclass(frozen=True, slots=True)
class Fitness:
    """What may be tuned; `why_not` says why nothing may."""

    why_not: str | None = None
    at_borders: bool = False
    """Settings change between epochs only."""
    workers: bool = True
    """Their number may change."""
    none: bool = True
    """There may be none where the user has some."""
    several: bool = True
    """There may be more than one where the user has at most one."""
    images: bool = False
    """Those of its image folder may be read by unstarve."""
    notes: tuple[str, ...] = ()

    def without_images(self, note: str) -> Fitness:
        """Return the same, but that the user's own dataset reads them; `note` says why."""
        return replace(self, images=False, notes=(*self.notes, note))


def with_images(fitness: Fitness, loader: DataLoader[Any]) -> Fitness:
    """Let unstarve read the images of an image folder where it can; where it cannot, a note says why."""
    if fitness.why_not is not None or not fitness.workers or fitness.at_borders:
        return fitness
    reason = images.why_not(loader)
    if reason is None:
        return replace(fitness, images=True)
    note = f"reading the images with unstarve was not tried: {reason}"
    return fitness.without_images(note) if reason else fitness


def examine(loader: DataLoader[Any], *, deterministic: bool) -> Fitness:
    """Say what may be tuned of a loader."""
    why_not = _why_not(loader) or (_why_not_deterministic(loader) if deterministic else None)
    if why_not is not None:
        return Fitness(why_not)
    if deterministic:
        note = (
            "deterministic=True: only the prefetch depth is tuned, workers have random numbers of their own"
        )
        return Fitness(
            at_borders=isinstance(loader.dataset, IterableDataset), workers=False, none=False, notes=(note,)
        )
    if isinstance(loader.dataset, IterableDataset):
        return _of_iterable(loader.num_workers)
    if loader.num_workers == 0:
        return Fitness()
    if loader.worker_init_fn is not None:
        return Fitness(
            none=False, notes=("at least one worker stays: worker_init_fn sets something up in it",)
        )
    if loader.timeout > 0:
        return Fitness(none=False, notes=("at least one worker stays: timeout= is about workers",))
    return Fitness()


def _of_iterable(own: int) -> Fitness:
    notes = ["an iterable dataset: settings change between epochs"]
    if own <= 1:
        notes.append(
            "no more than one worker is tried: whether the dataset gives each its own share is not known"
        )
    return Fitness(at_borders=True, none=own == 0, several=own > 1, notes=tuple(notes))


def _why_not(loader: DataLoader[Any]) -> str | None:
    engine = getattr(loader, "engine", None)
    if engine in ENGINES and engine not in WORKER_ENGINES:
        return f"the engine {engine!r} makes batches without workers"
    kind = type(loader)
    own_way = kind.__iter__ is not DataLoader.__iter__ and not hasattr(kind, "tunes_itself")
    if own_way or kind._get_iterator is not _torch_get_iterator:
        return f"{kind.__name__} iterates in a way of its own"
    if _is_datapipe(loader.dataset):
        return "the dataset is a datapipe, which the workers share among themselves"
    return None


def _why_not_deterministic(loader: DataLoader[Any]) -> str | None:
    if loader.num_workers == 0:
        return "deterministic=True leaves only the prefetch depth to tune, and there are no workers"
    if isinstance(loader.dataset, IterableDataset):
        return None
    if settled_batches(loader.batch_sampler) == 0:
        return (
            "deterministic=True, and when the sampler draws its random numbers is not known: "
            "it may depend on how far ahead it is asked"
        )
    return None


def _is_datapipe(dataset: Any) -> bool:
    """By name: newer versions of torch have none."""
    return any(cls.__name__ in ("IterDataPipe", "MapDataPipe") for cls in type(dataset).__mro__)
