"""Settings of a loader that cost time for certain, whatever the step does."""

from __future__ import annotations

import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch.utils.data._utils.collate import default_collate

from unstarve import machine
from unstarve.advise.rules.data_storage import FAR
from unstarve.checks.objects.attributes import places
from unstarve.checks.objects.loader_parts import is_torchs_own, report, set_to
from unstarve.checks.objects.subject import Subject
from unstarve.collect.dataset_facts import dataset_facts, inside
from unstarve.collect.describe import batch_extent, count_tensors
from unstarve.collect.device.gpu import cuda_in_use
from unstarve.collect.host_facts import filesystems
from unstarve.model.finding import Finding
from unstarve.words import mean_count, size, workers

_FULL_PIPELINES = 10
"""An epoch of this many full pipelines loses little at its start."""
_MANY_ROWS = 64
"""From this many rows on, reading them one by one takes most of the time of a small batch."""
_MANY_SAMPLES = 10_000
"""An epoch of fewer rows takes no time, however they are read."""
_MANY_TENSORS = 64
_WORTH_PINNING_BYTES = 1_000_000
_SMALL_FILE_BYTES = 1_000_000
_MANY_FILES = 1000
_MOST_WEIGHTS = 1 << 24
"""`torch.multinomial` takes no more categories."""
_FAR_TOO_MANY = 2
"""Workers per core: fewer may still be busy waiting for data."""


def tiny_epochs(subject: Subject) -> Iterator[Finding]:
    """An epoch that ends before its pipeline is full."""
    loader, name = subject.loader, subject.dataset_name
    ahead = loader.num_workers * (loader.prefetch_factor or 2)
    batches = _length(loader)
    if not loader.num_workers or not batches or batches >= ahead or subject.is_training is False:
        return
    passes = math.ceil(_FULL_PIPELINES * ahead / batches)
    longer = f", or sampler=RandomSampler({name}, num_samples={passes} * len({name}))"
    yield report(
        subject,
        "tiny-epochs",
        f"An epoch of {subject.name} has {mean_count(batches)} batches; {workers(loader.num_workers)} "
        f"prefetch {mean_count(ahead)}.",
        f"{set_to(subject, num_workers=batches // (loader.prefetch_factor or 2))}"
        f"{longer if isinstance(loader.sampler, RandomSampler) else ''}.",
        harm=1 - batches / ahead,
    )


def no_getitems(subject: Subject) -> Iterator[Finding]:
    """Rows of tensors in memory that torch reads one by one."""
    loader = subject.loader
    rows = loader.batch_size or 0
    if rows < _MANY_ROWS or loader.collate_fn is not default_collate or not is_torchs_own(loader):
        return
    dataset, facts = inside(loader.dataset), dataset_facts(loader.dataset)
    if hasattr(dataset, "__getitems__") or not facts.get("columns_in_memory"):
        return
    if facts.get("length", 0) < _MANY_SAMPLES or subject.is_training is False:
        return
    yield report(
        subject,
        "no-getitems",
        f"{subject.dataset_name} ({type(dataset).__name__}) is in memory, but {subject.name} reads and "
        f"stacks it row by row, {mean_count(rows)} rows a batch.",
        f"Use unstarve.DataLoader for {subject.name}: it indexes the tensors once per batch.",
    )


def threads_per_worker(subject: Subject) -> Iterator[Finding]:
    """OpenCV's threads, which every worker starts for itself."""
    loader, opencv = subject.loader, sys.modules.get("cv2")
    if not loader.num_workers or opencv is None:
        return
    threads, cores = opencv.getNumThreads(), machine.share_of_cores()
    if threads < 2 or threads * loader.num_workers <= cores or not _uses(subject, "cv2"):
        return
    if _mentions(loader.worker_init_fn, "setNumThreads") or _mentions(loader.dataset, "setNumThreads"):
        return
    yield report(
        subject,
        "threads-per-worker",
        f"OpenCV computes with {threads} threads in each of {workers(loader.num_workers)}: "
        f"{threads * loader.num_workers} threads on {_cores(cores)}.",
        "Write cv2.setNumThreads(0) below import cv2.",
        harm=min(1 - cores / (threads * loader.num_workers), 1.0),
    )


def more_workers_than_cores(subject: Subject) -> Iterator[Finding]:
    """More workers than a container's quota has cores: neither torch nor `os.cpu_count` knows of it."""
    count, quota, cores = subject.loader.num_workers, machine.cgroup_quota_cores(), machine.share_of_cores()
    if quota is None or quota >= machine.usable_cores() or count < _FAR_TOO_MANY * cores or count < 2:
        return
    yield report(
        subject,
        "more-workers-than-cores",
        f"{subject.name} has {workers(count)}; the container's CPU quota is {_cores(quota)}, although "
        f"{machine.usable_cores()} are visible.",
        f"{set_to(subject, num_workers=max(int(cores), 1))}, or raise the quota.",
        harm=1 - cores / count,
    )


def worker_affinity(subject: Subject) -> Iterator[Finding]:
    """A training process that was confined to a few cores after it started: its workers are, too."""
    count, first, now = subject.loader.num_workers, machine.first_cores, machine.main_thread_cores()
    if first is None or now is None or len(now) >= min(first, count):
        return
    if _mentions(subject.loader.worker_init_fn, "sched_setaffinity"):
        return
    yield report(
        subject,
        "worker-affinity",
        f"Python started with {_cores(first)}; now this process, and with it {workers(count)}, may use "
        f"{_cores(len(now))}.",
        "Call os.sched_setaffinity(0, range(os.cpu_count())) before you create "
        f"{subject.name}, or in its worker_init_fn.",
        harm=1 - len(now) / min(first, count),
    )


def many_tensors(subject: Subject) -> Iterator[Finding]:
    """Batches whose tensors are each sent as a file."""
    loader = subject.loader
    if not loader.num_workers or not subject.batches or not is_torchs_own(loader):
        return
    count = count_tensors(subject.batches[0])
    if count is None or count < _MANY_TENSORS:
        return
    yield report(
        subject,
        "many-tensors",
        f"A batch of {subject.name} consists of {mean_count(count)} tensors.",
        f"Use unstarve.DataLoader for {subject.name}, or join fields of equal shape in collate_fn.",
    )


def not_pinned(subject: Subject) -> Iterator[Finding]:
    """Batches in pageable memory, in a process that uses CUDA."""
    if subject.loader.pin_memory or not subject.batches or subject.is_training is False:
        return
    _, nbytes = batch_extent(subject.batches[0])
    if not cuda_in_use() or nbytes < _WORTH_PINNING_BYTES or _on_device(subject.batches[0]):
        return
    yield report(
        subject,
        "not-pinned",
        f"A batch of {subject.name} is {size(nbytes)} in pageable memory, and training uses CUDA.",
        f"{set_to(subject, pin_memory=True)}, and copy with .to(device, non_blocking=True).",
    )


def network_small_files(subject: Subject) -> Iterator[Finding]:
    """Many small files on another machine."""
    facts = dataset_facts(subject.loader.dataset)
    root, nbytes, length = facts.get("root"), facts.get("file_bytes"), facts.get("length")
    if root is None or nbytes is None or nbytes >= _SMALL_FILE_BYTES or (length or 0) < _MANY_FILES:
        return
    (kind,), (base,) = (list(filesystems(Counter({folder: 1}))) or [""] for folder in (root, "/"))
    # A container's own root may be a FUSE or 9p file system on the local disk.
    if not kind.lower().startswith(FAR) or kind == base:
        return
    pattern = facts.get("packs_as")
    yield report(
        subject,
        "network-small-files",
        f"{subject.dataset_name} reads {mean_count(length or 0)} files of about {size(nbytes)} from {root} "
        f"({kind}).",
        f"Copy {root} to a local disk, and read it there."
        if pattern is None
        else f"Pack them into one file: unstarve pack {shlex.quote(pattern)} {subject.dataset_name}.packed",
    )


def too_many_weights(subject: Subject) -> Iterator[Finding]:
    """More weights than `torch.multinomial` takes."""
    sampler = subject.loader.sampler
    count = len(sampler.weights) if isinstance(sampler, WeightedRandomSampler) else 0
    if count <= _MOST_WEIGHTS:
        return
    yield report(
        subject,
        "too-many-weights",
        f"WeightedRandomSampler has {mean_count(count)} weights; torch.multinomial takes at most "
        f"{mean_count(_MOST_WEIGHTS)}.",
        "Draw the indices with numpy.searchsorted(weights.cumsum(0), uniform random numbers).",
    )


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # a stream, or a dataset or sampler without a length
        return None


def _uses(subject: Subject, module: str) -> bool:
    """Whether the code of the dataset, its transforms or the collate function has imported a module."""
    wanted = sys.modules[module]
    kinds = {type(value).__module__ for _, value, *_ in places(subject.loader.dataset, "", max_depth=4)}
    kinds.add(getattr(subject.loader.collate_fn, "__module__", ""))
    modules = [sys.modules[name] for name in kinds if name in sys.modules and name != module]
    return any(value is wanted for one in modules for value in list(vars(one).values()))


def _mentions(value: Any, name: str) -> bool:
    """Whether a function, or a method of an object's class, uses a name."""
    functions = [value, *vars(type(value)).values()]
    return any(name in one.__code__.co_names for one in functions if hasattr(one, "__code__"))


def _on_device(batch: Any) -> bool:
    pending = [batch]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            return item.device.type != "cpu"
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, (list, tuple)):
            pending += item
    return False


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{mean_count(count)} cores"
