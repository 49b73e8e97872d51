"""Unions of intervals and what they share, on sorted arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unstarve.importers.capture import Times


class Union(NamedTuple):
    """Disjoint intervals in the order of time."""

    begin: Times
    end: Times

    @property
    def total_ns(self) -> int:
        return int((self.end - self.begin).sum())


def union(begin: Times, end: Times) -> Union:
    """The intervals with all overlaps merged; empty ones are gone."""
    real = end > begin
    begin, end = begin[real], end[real]
    if not len(begin):
        return Union(begin, end)
    order = np.argsort(begin, kind="stable")
    begin, latest = begin[order], np.maximum.accumulate(end[order])
    first = np.r_[True, begin[1:] > latest[:-1]]
    last = np.r_[first[1:], True]
    return Union(begin[first], latest[last])


def clipped(spans: Union, low: int, high: int) -> Union:
    """The part between two moments."""
    begin, end = np.clip(spans.begin, low, high), np.clip(spans.end, low, high)
    return Union(begin[end > begin], end[end > begin])


def complement(spans: Union, low: int, high: int) -> Union:
    """What is left between two moments."""
    inside = clipped(spans, low, high)
    begin, end = np.r_[low, inside.end], np.r_[inside.begin, high]
    return Union(begin[end > begin], end[end > begin])


def minus(spans: Union, taken: Union) -> Union:
    """The part of a union that another one does not cover."""
    if not len(spans.begin) or not len(taken.begin):
        return spans
    low, high = int(spans.begin[0]), int(spans.end[-1])
    outside, covered = complement(spans, low, high), clipped(taken, low, high)
    rest = union(np.r_[outside.begin, covered.begin], np.r_[outside.end, covered.end])
    return complement(rest, low, high)


def shared_ns(a: Union, b: Union) -> int:
    """Time that lies in both."""
    return int(shared_each(a.begin, a.end, b).sum())


def shared_each(begin: Times, end: Times, spans: Union) -> Times:
    """For each interval, how much of it lies in the union."""
    return _before(end, spans) - _before(begin, spans)


def _before(moments: Times, spans: Union) -> Times:
    """How much of the union lies before each moment."""
    if not len(spans.begin):
        return np.zeros_like(moments)
    lengths = spans.end - spans.begin
    summed = np.r_[0, np.cumsum(lengths)]
    at = np.searchsorted(spans.begin, moments, side="right")
    inside = np.minimum(moments - spans.begin[np.maximum(at - 1, 0)], lengths[np.maximum(at - 1, 0)])
    partial: Times = np.where(at > 0, summed[np.maximum(at - 1, 0)] + inside, 0)
    return partial
