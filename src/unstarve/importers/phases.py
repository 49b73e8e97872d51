"""The phases of a training step, read off a trace: nothing has to be hooked into the training for that.

torch marks loader waits, optimizer steps and every function of the backward pass; an operator that copies to
the device is a copy; what else the training thread computes is the forward pass. Python between two operators
of the same phase belongs to that phase.
"""

from __future__ import annotations

import re

import numpy as np

from unstarve.importers.capture import Capture, Times
from unstarve.importers.spans import Union, clipped, minus, union
from unstarve.model.profile import PhaseUse

PHASES = ("data", "copy", "forward", "backward", "optimizer", "other")
_BACKWARD = re.compile(
    r"autograd::engine::evaluate_function|.*Backward\d*$|.*AccumulateGrad|unstarve\.backward$"
)
_OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#|unstarve\.optimizer$")
_FORWARD = "unstarve.forward"
_COPIES = frozenset({"aten::to", "aten::_to_copy", "aten::copy_"})


Segments = tuple[Times, Times, Times]
"""Begin, end and number of the phase, in the order of time, without overlaps."""


def step_spans(capture: Capture, waits: Union) -> Union:
    """The profiled steps as one union; without marks, from the first wait to the last."""
    if len(capture.steps):
        return union(capture.steps.begin, capture.steps.end)
    if len(waits.begin) < 2:
        return Union(waits.begin[:0], waits.end[:0])
    return Union(waits.begin[:1], waits.begin[-1:])


def phases_of(capture: Capture, waits: Union, launched: Times, ordered: Segments) -> tuple[PhaseUse, ...]:
    """Host and device seconds per phase; they sum to the steps. Empty when the file marks no steps.

    `launched` is the device time of each host event, `ordered` comes from `segments_of`.
    """
    steps = step_spans(capture, waits)
    if not steps.total_ns:
        return ()
    spent = dict.fromkeys(PHASES, 0)
    begins, ends, numbers = ordered
    for number, length in zip(numbers.tolist(), (ends - begins).tolist(), strict=True):
        spent[PHASES[number]] += length
    spent["other"] = max(steps.total_ns - sum(spent.values()), 0)
    on_device = dict.fromkeys(PHASES, 0)
    chosen = np.flatnonzero(launched)
    at_launch = phases_at(ordered, capture.host.begin[chosen])
    for number, length in zip(at_launch.tolist(), launched[chosen].tolist(), strict=True):
        on_device[PHASES[number]] += length
    return tuple(PhaseUse(name, spent[name] / 1e9, on_device[name] / 1e9) for name in PHASES)


def segments_of(capture: Capture, waits: Union, thread: int | None, from_host: Times) -> Segments:
    """The training thread's time by phase. Empty when the file marks no steps.

    `from_host` is the time of each host event in which the device copied from the host.
    """
    steps = step_spans(capture, waits)
    if not steps.total_ns:
        return waits.begin[:0], waits.begin[:0], waits.begin[:0]
    host = capture.host
    mine = host.of("thread") == thread
    texts = capture.names.texts
    backward, optimizer, copies, forward = (
        np.array([bool(test(text)) for text in texts], bool)
        for test in (_BACKWARD.match, _OPTIMIZER.match, _COPIES.__contains__, _FORWARD.__eq__)
    )
    name = host.of("name")
    chosen = {
        "optimizer": mine & optimizer[name],
        "backward": backward[name],
        "copy": mine & copies[name] & (from_host > 0),
        "forward": mine & ((host.of("operator") == 1) | forward[name]),
    }
    taken, found = waits, [("data", waits)]
    for phase, events in chosen.items():
        spans = minus(union(host.begin[events], host.end[events]), taken)
        found.append((phase, spans))
        both = [taken, spans]
        taken = union(np.concatenate([u.begin for u in both]), np.concatenate([u.end for u in both]))
    low, high = int(steps.begin[0]), int(steps.end[-1])
    parts = [(PHASES.index(phase), clipped(spans, low, high)) for phase, spans in found]
    begins = np.concatenate([spans.begin for _, spans in parts])
    ends = np.concatenate([spans.end for _, spans in parts])
    numbers = np.concatenate([np.full(len(spans.begin), number, np.int64) for number, spans in parts])
    order = np.argsort(begins, kind="stable")
    begins, ends, numbers = begins[order], ends[order], numbers[order]
    same = numbers[1:] == numbers[:-1]
    ends[:-1][same] = begins[1:][same]  # Python between two operators of one phase
    return begins, ends, numbers


def phases_at(segments: Segments, moments: Times) -> Times:
    """The number of the phase at each moment: ``other`` outside of the rest."""
    begins, ends, numbers = segments
    other = np.full(len(moments), PHASES.index("other"))
    if not len(begins):
        return other
    at = np.searchsorted(begins, moments, side="right") - 1
    inside = (at >= 0) & (moments < ends[at])
    return np.where(inside, numbers[at], other)
