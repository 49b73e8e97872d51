"""The process that runs a learner's version and compares its results with the original's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unstarve.labs import versions
from unstarve.labs.started import start


@pytest.fixture
def compare(tmp_path: Path) -> Callable[[Callable[[torch.Tensor], object]], bool]:
    """Whether results that are the original's after some change are taken for the same."""
    from unstarve.labs.original import original

    lab = start("basic-profiling", tmp_path, seed=1).lab
    with original(lab) as slow:
        right = slow.make(tmp_path)(5)

    def same(changed: Callable[[torch.Tensor], object]) -> bool:
        return versions._same({5: changed(right)}, tmp_path)  # type: ignore[dict-item]  # learners return anything

    return same


def test_rounding_does_not_matter(compare: Callable[[Callable[[torch.Tensor], object]], bool]) -> None:
    assert compare(lambda right: right + 1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        lambda right: right + 0.01,
        lambda right: right.bfloat16().float(),
        lambda right: right.double(),
        lambda right: right[:-1],
        lambda right: right * float("nan"),
        lambda right: None,
    ],
)
def test_other_results_do(
    changed: Callable[[torch.Tensor], object], compare: Callable[[Callable[[torch.Tensor], object]], bool]
) -> None:
    assert not compare(changed)
