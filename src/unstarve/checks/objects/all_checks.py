"""Every check of objects, and how they are run."""

from __future__ import annotations

from unstarve.checks.objects import dataset_memory, loader_speed
from unstarve.checks.objects.chunks import chunk_larger_than_sample
from unstarve.checks.objects.cuda_tensors import cuda_in_worker
from unstarve.checks.objects.epoch_number import set_epoch_lost
from unstarve.checks.objects.forked_tokenizer import tokenizer_before_fork
from unstarve.checks.objects.handles import handle_before_fork
from unstarve.checks.objects.limits import descriptors, memory_limit, shm_full
from unstarve.checks.objects.lost_threads import fork_after_threads
from unstarve.checks.objects.main_guard import missing_main_guard
from unstarve.checks.objects.pickling import not_picklable
from unstarve.checks.objects.random_streams import generator_before_fork, worker_seeds_equal
from unstarve.checks.objects.ranks import ranks_compared
from unstarve.checks.objects.sample_buffers import shared_batch_memory
from unstarve.checks.objects.streams import (
    drop_last_loses,
    fewer_shards_than_workers,
    iterable_not_split,
    length_wrong,
)
from unstarve.checks.objects.subject import ObjectCheck, Subject
from unstarve.checks.objects.whole_reads import whole_reads
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

WRONG_DATA: tuple[ObjectCheck, ...] = (
    generator_before_fork,
    worker_seeds_equal,
    iterable_not_split,
    fewer_shards_than_workers,
    length_wrong,
    drop_last_loses,
    set_epoch_lost,
    ranks_compared,
    handle_before_fork,
    shared_batch_memory,
)
CRASH_OR_HANG: tuple[ObjectCheck, ...] = (
    not_picklable,
    missing_main_guard,
    cuda_in_worker,
    shm_full,
    memory_limit,
    descriptors,
    fork_after_threads,
    tokenizer_before_fork,
    loader_speed.too_many_weights,
)
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
    chunk_larger_than_sample,
    whole_reads,
)


def check_loader(subject: Subject) -> list[Finding]:
    """All findings about a loader, the worst first."""
    checks = (*WRONG_DATA, *CRASH_OR_HANG, *SPEED_AND_MEMORY)
    return by_harm([found for check in checks for found in check(subject)])
