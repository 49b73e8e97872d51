"""Which samples stand out, on times that were not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, IterableDataset

from unstarve.checks import slow_samples
from unstarve.checks.names import Names
from unstarve.checks.slow_samples import SampleTime, SampleTimes, time_samples

NAMES = Names("train_loader", "train_set", "train.py", 4)


def times_of(*seconds: float) -> SampleTimes:
    return SampleTimes(tuple(SampleTime(at, one, None) for at, one in enumerate(seconds)), len(seconds))


def test_samples_far_above_the_median_are_named_with_their_share() -> None:
    times = times_of(*[0.01] * 98, 0.49, 0.98)
    (found,) = times.findings(NAMES)
    assert found.id == "slow-sample"
    assert found.message.startswith(
        "2 of 100 timed samples of train_set take more than 5 times the median of 10.0 ms: "
        "train_set[99] 980 ms, train_set[98] 490 ms."
    )
    assert found.message.endswith("Together they take 60% of the time.")
    assert (found.file, found.line) == ("train.py", 4)


def test_one_sample_is_spoken_of_as_one() -> None:
    (found,) = times_of(*[0.01] * 99, 0.99).findings(NAMES)
    assert found.message.startswith("1 of 100 timed samples of train_set takes more than 5 times")
    assert found.message.endswith("It takes 50% of the time.")


@pytest.mark.parametrize(
    "seconds", [(0.01,) * 50, (0.01,) * 49 + (0.049,), (0.0001,) * 49 + (0.004,), (1.0,)],
    ids=["alike", "less than five times", "all of them fast", "one"],
)  # fmt: skip
def test_samples_that_are_alike_are_silent(seconds: tuple[float, ...]) -> None:
    assert list(times_of(*seconds).findings(NAMES)) == []


class Files(Dataset[bytes]):
    """Reading sample 7 takes a second on the fake clock; `busy` is slow the first time only."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.samples = [(str(folder / f"{n}.bin"), 0) for n in range(20)]
        self.clock, self.asked, self.busy = clock, [0] * 20, 12

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> bytes:
        self.asked[index] += 1
        slow = index == 7 or (index == self.busy and self.asked[index] == 1)
        self.clock[0] += 1.0 if slow else 0.01
        return b""


def test_a_sample_that_is_slow_only_once_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(slow_samples.time, "perf_counter", lambda: clock[0])
    times = time_samples(Files(tmp_path, clock), 100)
    assert times is not None
    assert [(one.at, one.file) for one in times.outliers] == [(7, str(tmp_path / "7.bin"))]


def test_samples_are_spread_evenly(tmp_path: Path) -> None:
    dataset = Files(tmp_path, [0.0])
    time_samples(dataset, 3)
    assert [index for index, asked in enumerate(dataset.asked) if asked] == [0, 10, 19]


def test_streams_and_empty_datasets_have_no_samples_to_time() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(())

    assert time_samples(Stream(), 3) is None
    assert time_samples([], 3) is None
