"""Tensors are counted wherever a batch keeps them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from unstarve.collect.describe import count_tensors

T = torch.zeros(2)


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (T, 1),
        ([T, T], 2),
        ({"image": T, "boxes": [T, T], "name": ["a", "b"]}, 3),
        ((T, {"inner": (T, [T])}, 5, None), 3),
        ("words", 0),
        ([[0] * 20_000], None),
    ],
)
def test_tensors_are_counted_in_nested_batches(batch: Any, count: int | None) -> None:
    assert count_tensors(batch) == count
