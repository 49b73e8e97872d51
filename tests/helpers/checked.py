"""What the checks of a loader's data and of crashes say about it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from unstarve.checks.objects.all_checks import CRASH_OR_HANG, WRONG_DATA
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding


def subject_of(loader: DataLoader[Any], **facts: Any) -> Subject:
    return Subject(loader, **{"name": "train_loader", "dataset_name": "train_set", **facts})


def findings(loader: DataLoader[Any], **facts: Any) -> list[Finding]:
    subject = subject_of(loader, **facts)
    return [found for check in (*WRONG_DATA, *CRASH_OR_HANG) for found in check(subject)]


def ids(loader: DataLoader[Any], **facts: Any) -> list[str]:
    return [found.id for found in findings(loader, **facts)]


def first_batches(loader: DataLoader[Any], count: int = 3) -> tuple[Any, ...]:
    """As the workers deliver them."""
    return tuple(islice(loader, count))
