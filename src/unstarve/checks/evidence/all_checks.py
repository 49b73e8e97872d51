"""Every check of a recorded run, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unstarve.checks.evidence import (
    batch_making,
    breakage,
    cores,
    epoch_contents,
    epoch_starts,
    file_use,
    samples,
)
from unstarve.checks.evidence.device_memory import device_memory_growth
from unstarve.checks.evidence.gpu_out_of_memory import out_of_memory
from unstarve.checks.evidence.memory import memory_growth
from unstarve.checks.evidence.watermarks import descriptor_watermark, shared_memory_watermark
from unstarve.model import Diagnosis, Run
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

EvidenceCheck = Callable[[Run, Diagnosis], Iterable[Finding]]

EVIDENCE: tuple[EvidenceCheck, ...] = (
    samples.set_epoch_missed,
    samples.same_order,
    samples.ranks_not_split,
    samples.dropped_by_collate,
    samples.worker_seeds_equal,
    samples.repeated_samples,
    epoch_contents.uneven_ranks,
    epoch_contents.fewer_shards_than_workers,
    epoch_contents.drop_last_loses,
    epoch_starts.workers_each_epoch,
    epoch_starts.tiny_epochs,
    epoch_starts.large_pickled_dataset,
    epoch_starts.slow_start,
    cores.more_workers_than_cores,
    cores.threads_per_worker,
    cores.throttled,
    cores.worker_affinity,
    batch_making.no_workers,
    batch_making.no_getitems,
    batch_making.order,
    batch_making.slow_sample,
    batch_making.many_tensors,
    batch_making.not_pinned,
    batch_making.slow_sampler,
    file_use.reads_too_much,
    file_use.network_small_files,
    file_use.resampling_in_getitem,
    memory_growth,
    device_memory_growth,
    shared_memory_watermark,
    descriptor_watermark,
    breakage.hangs,
    breakage.timeouts,
    breakage.deaths,
    breakage.shared_memory_full,
    out_of_memory,
)


def health_of(run: Run, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """What the run shows to be wrong, the worst first."""
    return tuple(by_harm([found for check in EVIDENCE for found in check(run, diagnosis)]))
