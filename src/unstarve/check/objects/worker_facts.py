"""What checks about speed ask of a loader's workers."""

from __future__ import annotations

import multiprocessing
from typing import Any

from torch.utils.data import DataLoader

from unstarve.check.objects.subject import Subject
from unstarve.marks import ChoosesEngine
from unstarve.model.checks import finding
from unstarve.model.finding import Finding


def report(subject: Subject, id: str, message: str, fix: str, *, harm: float = 0.0) -> Finding:
    """A finding at the line that creates the loader."""
    return finding(id, message, fix, file=subject.file, line=subject.line, harm=harm)


def start_method(loader: DataLoader[Any]) -> str:
    """``fork``, ``spawn`` or ``forkserver``; asking does not settle the default."""
    context = loader.multiprocessing_context or multiprocessing
    chosen = context.get_start_method(allow_none=True)
    return str(chosen or multiprocessing.get_all_start_methods()[0])


def is_torchs_own(loader: DataLoader[Any]) -> bool:
    """Whether torch itself makes and sends the batches, not an engine of `unstarve.DataLoader`."""
    return not isinstance(loader, ChoosesEngine)
