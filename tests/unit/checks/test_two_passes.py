"""Checks run before the workers start; those that look at batches run again when there are some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader

from unstarve.checks.objects import all_checks
from unstarve.checks.objects.subject import Subject
from unstarve.checks.objects.two_passes import first_pass, second_pass
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

calls: list[str] = []


def looks_at_loader(subject: Subject) -> Iterator[Finding]:
    calls.append("loader")
    yield finding("no-workers", f"{subject.name} {subject.loader.num_workers}", "fix")


def looks_at_batches(subject: Subject) -> Iterator[Finding]:
    calls.append("batches")
    yield finding("shm-full", f"{len(subject.batches)} batches", "fix")


def breaks(subject: Subject) -> Iterator[Finding]:
    raise LookupError("planted")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(all_checks, "WRONG_DATA", (breaks,))
    monkeypatch.setattr(all_checks, "CRASH_OR_HANG", (looks_at_batches,))
    monkeypatch.setattr(all_checks, "SPEED_AND_MEMORY", (looks_at_loader,))


def messages(batches: tuple[int, ...]) -> tuple[list[str], list[str]]:
    complaints: list[str] = []
    subject = Subject(DataLoader([1]), "train_loader")
    first = first_pass(subject, complaints.append)
    late = Subject(subject.loader, "train_loader", batches=batches)
    return [one.message for one in second_pass(late, first, complaints.append)], complaints


def test_only_checks_that_ask_for_batches_run_again() -> None:
    assert messages((1, 2))[0] == ["train_loader 0", "2 batches"]
    assert calls == ["batches", "loader", "batches"]


def test_without_batches_the_first_answer_stands() -> None:
    assert messages(())[0] == ["train_loader 0", "0 batches"]
    assert calls == ["batches", "loader"]


def test_a_check_that_breaks_is_a_sentence_and_the_others_run() -> None:
    found, complaints = messages((1,))
    assert len(found) == 2
    assert complaints == ["the check breaks failed on train_loader: LookupError('planted')"]
