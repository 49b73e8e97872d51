"""CUDA tensors in the hands of workers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from unstarve import words
from unstarve.checks.objects.batch_values import tensors
from unstarve.checks.objects.loader_parts import held_by_samples, is_forked, is_used, report
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_DEVICES = frozenset({"cuda"})
_MOVE_LATER = "Move batches in the training loop: batch.to(device, non_blocking=True)"


def cuda_in_worker(subject: Subject) -> Iterator[Finding]:
    """Tensors on a GPU that samples are made from, or that a worker delivers."""
    loader = subject.loader
    if loader.num_workers == 0:
        return
    found, workers = _on_gpu(subject), words.workers(loader.num_workers)
    if found is not None:
        path, device = found
        consequence = "cannot use" if is_forked(loader) else "each open a CUDA context to use"
        message = f"{path} is a tensor on {device}, which {workers} {consequence}."
        fix = f"Keep {path} in main memory: {path}.cpu(). {_MOVE_LATER}"
    elif (origin := _delivered_from(subject)) is not None:
        message = f"{workers} of {subject.name} deliver tensors on {origin} and hold a CUDA context each."
        fix = f"Return CPU tensors from {subject.dataset_name}. {_MOVE_LATER}"
    else:
        return
    yield report(subject, "cuda-in-worker", message, fix, harm=1.0)


def _on_gpu(subject: Subject) -> tuple[str, str] | None:
    """The first GPU tensor that samples are made from, and its device."""
    for place in held_by_samples(subject):
        value = place.value
        if isinstance(value, torch.Tensor) and value.device.type in _DEVICES and is_used(place, subject):
            return place.path, str(value.device)
    return None


def _delivered_from(subject: Subject) -> str | None:
    found = [tensor.device for batch in subject.batches for tensor in tensors(batch)]
    return next((str(device) for device in found if device.type in _DEVICES), None)
