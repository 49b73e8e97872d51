"""Digests of delivered samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from unstarve.collect import sample_digests
from unstarve.collect.sample_digests import SampleDigests, digests

ROWS = torch.arange(12, dtype=torch.float32).reshape(4, 3)


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        ROWS.numpy(),
        [ROWS, torch.tensor([0, 1, 2, 3])],
        {"x": ROWS, "text": ["a", "b", "c", "d"]},
        (ROWS.to(torch.bfloat16), np.arange(4)),
        ["a", "b", "c", "d"],
    ],
)
def test_each_sample_has_its_own_digest_and_always_the_same(batch: Any) -> None:
    found = digests(batch, 4)
    assert found is not None
    assert len(set(found)) == 4
    assert digests(batch, 4) == found


def test_equal_samples_have_equal_digests_wherever_they_stand() -> None:
    first, second = digests([ROWS, ["a", "b", "c", "d"]], 4), digests([ROWS.flip(0), ["d", "c", "b", "a"]], 4)
    assert first is not None
    assert second is not None
    assert first == second[::-1]


def test_any_field_tells_samples_apart() -> None:
    labels = digests([torch.zeros(2, 3), torch.tensor([0, 1])], 2)
    assert labels is not None
    assert labels[0] != labels[1]


@pytest.mark.parametrize(
    "batch", [torch.tensor(3), object(), [object()], torch.zeros(3), ROWS.to_sparse(), None]
)
def test_a_batch_without_a_row_per_sample_has_no_digests(batch: Any) -> None:
    assert digests(batch, 4) is None


def test_a_process_digests_only_so_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    lost: list[str] = []
    monkeypatch.setattr(sample_digests, "_MOST_SAMPLES", 6)
    ledger = SampleDigests(lambda kind, **_: noted.append(kind), lost.append)
    for task in range(5):
        ledger.add(0, 0, task, ROWS, 4)
    assert noted == ["digests", "digests"]
    assert lost == ["the ledger covers the first 6 samples only"]
