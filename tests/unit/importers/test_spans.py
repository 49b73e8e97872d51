"""Unions of intervals, against sets of single nanoseconds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from unstarve.importers.spans import clipped, complement, shared_each, shared_ns, union


def made(rng: random.Random, count: int) -> tuple[np.ndarray, np.ndarray, set[int]]:
    begin = np.array([rng.randrange(100) for _ in range(count)], np.int64)
    end = begin + np.array([rng.randrange(12) for _ in range(count)], np.int64)
    covered = {at for b, e in zip(begin.tolist(), end.tolist(), strict=True) for at in range(b, e)}
    return begin, end, covered


@pytest.mark.parametrize("seed", range(20))
def test_unions_cover_what_their_intervals_cover(seed: int) -> None:
    rng = random.Random(seed)
    begin, end, covered = made(rng, rng.randrange(15))
    spans = union(begin, end)
    assert spans.total_ns == len(covered)
    assert all(a < b for a, b in zip(spans.end[:-1], spans.begin[1:], strict=True))
    inside = {at for at in covered if 20 <= at < 60}
    assert clipped(spans, 20, 60).total_ns == len(inside)
    assert complement(spans, 20, 60).total_ns == 40 - len(inside)
    other_begin, other_end, other = made(rng, rng.randrange(15))
    second = union(other_begin, other_end)
    assert shared_ns(spans, second) == shared_ns(second, spans) == len(covered & other)
    each = shared_each(begin, end, second)
    for b, e, shared in zip(begin.tolist(), end.tolist(), each.tolist(), strict=True):
        assert shared == len(set(range(b, e)) & other)
