"""Ranks of a distributed training that see the same samples, or different numbers of batches.

No rank can know this alone. Each writes the length of its loader and a digest of its first batch into the
store of torch.distributed, and reads those of the others: no collective, nothing on a GPU.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist

from unstarve.checks.objects.batch_values import arrays, samples_differ
from unstarve.checks.objects.loader_parts import is_stream, report
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_PATIENCE_S = 10.0
_AVERAGING = (
    ("torch.nn.parallel", "DistributedDataParallel"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank says about its loader."""

    batches: int | None
    """None where the loader has no length."""
    first: str | None
    """A digest of the first batch; None if it tells nothing."""


def ranks_compared(subject: Subject) -> Iterator[Finding]:
    """What ranks find when they compare their loaders; rank 0 reports it."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return
    if not subject.batches:  # the ranks meet once, when they have something to compare
        return
    store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
    shares = exchanged(subject, store, rank, dist.get_world_size())
    if rank == 0 and shares:
        yield from compared(subject, shares)


def exchanged(subject: Subject, store: Any, rank: int, ranks: int) -> list[Share]:
    """The shares of all ranks; none if a rank does not check this loader."""
    place = f"unstarve-check/{subject.file}:{subject.line}:{subject.name}"
    keys = [f"{place}/{other}" for other in range(ranks)]
    store.set(keys[rank], json.dumps(asdict(_share(subject))))
    deadline = time.monotonic() + _PATIENCE_S
    while not store.check(keys):  # store.wait() would print a warning, and may break the connection
        if time.monotonic() > deadline:
            return []
        time.sleep(0.02)
    return [Share(**json.loads(store.get(key))) for key in keys]


def _share(subject: Subject) -> Share:
    loader, first = subject.loader, subject.batches[:1]
    try:  # asking a stream's loader for its length would make torch warn later
        batches = None if is_stream(loader) else len(loader)
    except (TypeError, NotImplementedError):
        batches = None
    if not first or not samples_differ(first[0]):
        return Share(batches, None)
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays(first[0]):
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return Share(batches, digest.hexdigest())


def compared(subject: Subject, shares: list[Share]) -> Iterator[Finding]:
    """Findings about the shares of all ranks."""
    lengths = [share.batches for share in shares if share.batches is not None]
    if len(lengths) == len(shares) and len(set(lengths)) > 1:
        few, many = lengths.index(min(lengths)), lengths.index(max(lengths))
        yield report(
            subject,
            "uneven-ranks",
            f"{subject.name} has {lengths[few]:,} batches on rank {few},"
            f" but {lengths[many]:,} on rank {many}.",
            f"Stop every rank after {lengths[few]:,} batches:\n"
            f"for batch in itertools.islice({subject.name}, {lengths[few]}):",
            harm=1.0,
        )
    is_same = len({share.first for share in shares}) == 1 and shares[0].first is not None
    if is_same and subject.is_training is not False and is_data_parallel(len(shares)):
        yield _same_samples(subject, len(shares))


def is_data_parallel(ranks: int) -> bool:
    """Whether a model averages gradients over all ranks: else several may be meant to share a batch."""
    loaded = [vars(sys.modules[module]).get(name) for module, name in _AVERAGING if module in sys.modules]
    kinds = tuple(kind for kind in loaded if isinstance(kind, type))
    models = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    return any(dist.get_world_size(model.process_group) == ranks for model in models)


def _same_samples(subject: Subject, ranks: int) -> Finding:
    name, dataset = subject.name, subject.dataset_name
    id, fix = (
        "ranks-not-split",
        (
            f"sampler = DistributedSampler({dataset}, shuffle=True)\n"
            f"{name} = DataLoader({dataset}, ..., sampler=sampler)  # without shuffle=\n"
            "sampler.set_epoch(epoch)  # at the start of every epoch"
        ),
    )
    if is_stream(subject.loader):
        id, fix = (
            "iterable-not-split-by-rank",
            (
                f"# in {type(subject.loader.dataset).__name__}: today's __iter__ becomes all_samples()\n"
                "def __iter__(self):\n"
                "    info = torch.utils.data.get_worker_info()\n"
                "    worker, workers = (info.id, info.num_workers) if info else (0, 1)\n"
                "    rank, ranks = dist.get_rank(), dist.get_world_size()\n"
                "    first = rank * workers + worker\n"
                "    yield from itertools.islice(self.all_samples(), first, None, ranks * workers)"
            ),
        )
    message = f"The first batch of {name} is the same on all {ranks} ranks."
    return report(subject, id, message, fix, harm=1 - 1 / ranks)
