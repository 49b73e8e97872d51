"""`unstarve.check` in the user's own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

import unstarve
from unstarve.checks.objects import all_checks
from unstarve.checks.objects.subject import Subject
from unstarve.errors import UsageError
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

seen: list[Subject] = []


def planted(subject: Subject) -> Iterator[Finding]:
    seen.append(subject)
    if subject.batches:
        yield finding("no-workers", "loader", "fix")
        yield finding("copy-on-write", "dataset", "fix")
        yield finding("shm-full", "worst", "fix")


@pytest.fixture(autouse=True)
def one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    for group in ("WRONG_DATA", "CRASH_OR_HANG"):
        monkeypatch.setattr(all_checks, group, ())
    monkeypatch.setattr(all_checks, "SPEED_AND_MEMORY", (planted,))


def ids(findings: list[Finding]) -> list[str]:
    return [one.id for one in findings]


def test_a_loader_is_checked_under_its_own_name() -> None:
    train_loader = DataLoader([1, 2, 3, 4], batch_size=1)
    assert ids(unstarve.check(train_loader)) == ["shm-full", "copy-on-write", "no-workers"]
    assert (seen[-1].name, seen[-1].dataset_name) == ("train_loader", "train_loader.dataset")
    assert [batch.item() for batch in seen[-1].batches] == [1, 2]


def test_a_dataset_is_not_blamed_for_the_loader_it_is_checked_in() -> None:
    train_set = Subset([1, 2, 3, 4, 5], range(5))  # type: ignore[arg-type]  # lists have all it needs
    assert ids(unstarve.check(train_set, batches=1)) == ["copy-on-write"]
    assert seen[-1].dataset_name == "train_set"
    assert ids(unstarve.check({"train": train_set, "val": [train_set]}, batches=1)) == ["copy-on-write"] * 2
    assert seen[-1].dataset_name == "val[0]"
    assert seen[-1].batches == ([1, 2, 3, 4],)


def test_checks_can_be_ignored_and_batches_left_alone() -> None:
    loader = DataLoader([1, 2])
    assert ids(unstarve.check(loader, ignore=["shm-full"])) == ["copy-on-write", "no-workers"]
    assert unstarve.check(loader, batches=0) == []
    with pytest.raises(UsageError, match="shm-ful"):
        unstarve.check(loader, ignore=["shm-ful"])
    with pytest.raises(UsageError, match="must be a DataLoader or a dataset, got int"):
        unstarve.check(3)


@pytest.mark.parametrize("persistent", [False, True])
def test_training_afterwards_is_the_same(persistent: bool) -> None:
    def order(check: bool) -> list[int]:
        torch.manual_seed(3)
        loader = DataLoader(range(8), shuffle=True, num_workers=1, persistent_workers=persistent)  # type: ignore[arg-type]  # has all a dataset needs
        if check:
            unstarve.check(loader)
            assert loader._iterator is None
        return [int(batch) for batch in loader]

    assert order(check=True) == order(check=False)


def test_an_epoch_in_progress_goes_on() -> None:
    loader = DataLoader(range(6), num_workers=1, persistent_workers=True)  # type: ignore[arg-type]  # as above
    epoch = iter(loader)
    before = [int(next(epoch)) for _ in range(2)]
    with pytest.warns(UserWarning, match="loader has its workers already"):
        unstarve.check(loader)
    assert before + [int(batch) for batch in epoch] == [0, 1, 2, 3, 4, 5]


def test_a_loader_that_fails_is_a_warning_in_the_callers_line() -> None:
    class Broken(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            raise LookupError(f"no sample {index}")

    loader = DataLoader(Broken(), batch_size=2)
    with pytest.warns(UserWarning, match="loader failed: LookupError: no sample 0") as caught:
        assert unstarve.check(loader) == []
    assert caught[0].filename == __file__


def test_the_name_can_be_called_in_whatever_order_parts_are_imported() -> None:
    code = (
        "import unstarve\n{}\nfrom torch.utils.data import DataLoader\n"
        "assert isinstance(unstarve.check(DataLoader([1, 2])), list)\n"
        "from unstarve.checks.objects import all_checks\n"
        "assert isinstance(unstarve.check(DataLoader([1, 2]), batches=0), list)"
    )
    for before in ("", "import unstarve.checks.evidence.all_checks", "from unstarve import check"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(before)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
