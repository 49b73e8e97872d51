"""What fails is named, and what does not fit is an error or left to the source."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from cached_sources import COLLATED, MADE, Source, X, image
from same_batches import assert_same
from unstarve import CachedDataset
from unstarve.errors import CacheError, CacheTooLargeError


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_sample_that_cannot_be_read_is_named(bad: int) -> None:
    def fail(index: int) -> int:
        if index == bad:
            raise OSError("no such image")
        return index

    with pytest.raises(CacheError, match=f"sample {bad} could not be read: OSError: no such image") as caught:
        CachedDataset(Source(fail))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_lazily_read_sample_that_fails_raises_what_the_dataset_raises() -> None:
    def fail(index: int) -> int:
        if index == 5:
            raise FileNotFoundError("5.png")
        return index

    cached = CachedDataset(Source(fail), fill="lazy")
    with pytest.raises(FileNotFoundError, match=r"5\.png"):
        cached[5]
    assert cached[4] == 4


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr("unstarve.progress._BAR_EVERY_S", 0)
        CachedDataset(Source(image))
        assert ("12/12" in stream.getvalue() and " cached " in stream.getvalue()) is shown
        assert stream.getvalue().endswith("\x1b[2K") is shown


def test_pinning_without_a_gpu_warns() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.warns(UserWarning, match="no accelerator"):
        cached = CachedDataset(X, pin=True)
    assert_same(cached[1], X[1])


def test_what_does_not_fit_is_an_error_before_anything_is_filled() -> None:
    source = Source(COLLATED["pair"], 10_000)
    with pytest.raises(
        CacheTooLargeError, match=r"10,000 samples takes about 58\d KB, but only 100 KB .*partial.*disk"
    ):
        CachedDataset(source, budget="100KB")
    assert len(source.asked) == 3


def test_what_turns_out_not_to_fit_is_an_error() -> None:
    with pytest.raises(CacheTooLargeError, match=r"200 samples takes about .*, but only 100 KB"):
        CachedDataset(Source(lambda i: "x" * (10 if i in (0, 100, 199) else 2000), 200), budget="100KB")


@pytest.mark.parametrize("kind", ["pair", "dict", "ragged"])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_a_part_may_be_kept(kind: str, fill: Any) -> None:
    source = Source(MADE[kind], 2000)
    cached = CachedDataset(source, budget="60KB", over_budget="partial", fill=fill)
    for _ in range(2):
        assert_same(
            list(DataLoader(cached, batch_size=7, collate_fn=list)),
            list(DataLoader(Source(MADE[kind], 2000), batch_size=7, collate_fn=list)),
        )
    again = len(source.asked) - 2000
    assert 500 < again < 1950
    assert cached.rows() is None
    assert_same(cached[-1], MADE[kind](1999))
    assert_same(list(cached.__getitems__([-1, 3, -2000, 1999])), [MADE[kind](i) for i in (1999, 3, 0, 1999)])


def test_nothing_may_be_kept() -> None:
    cached = CachedDataset(Source(COLLATED["pair"]), budget=0, over_budget="partial")
    assert_same(
        list(DataLoader(cached, batch_size=5)), list(DataLoader(Source(COLLATED["pair"]), batch_size=5))
    )


def test_a_lazy_cache_that_fills_up_goes_on_from_the_source() -> None:
    def text(index: int) -> str:
        return "x" * (10 if index in (0, 100, 199) else 2000)

    cached = CachedDataset(Source(text, 200), budget="100KB", fill="lazy")
    with pytest.warns(UserWarning, match="cache is full"):
        assert list(cached) == [text(i) for i in range(200)]
    assert list(cached) == [text(i) for i in range(200)]
