"""Every check of objects, and how they are run."""

from __future__ import annotations

from unstarve.check.objects import dataset_memory, loader_speed
from unstarve.check.objects.subject import ObjectCheck, Subject
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

WRONG_DATA: tuple[ObjectCheck, ...] = ()
CRASH_OR_HANG: tuple[ObjectCheck, ...] = (loader_speed.too_many_weights,)
SPEED_AND_MEMORY: tuple[ObjectCheck, ...] = (
    dataset_memory.copy_on_write,
    dataset_memory.large_pickled_dataset,
    loader_speed.tiny_epochs,
    loader_speed.no_getitems,
    loader_speed.threads_per_worker,
    loader_speed.more_workers_than_cores,
    loader_speed.worker_affinity,
    loader_speed.many_tensors,
    loader_speed.not_pinned,
    loader_speed.network_small_files,
)


def check_loader(subject: Subject) -> list[Finding]:
    """All findings about a loader, the worst first."""
    checks = (*WRONG_DATA, *CRASH_OR_HANG, *SPEED_AND_MEMORY)
    return by_harm([found for check in checks for found in check(subject)])
