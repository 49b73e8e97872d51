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
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|.*Backward\d*$|.*AccumulateGrad")
_OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#")
_COPIES = frozenset({"aten::to", "aten::_to_copy", "aten::copy_"})


def step_spans(capture: Capture, waits: Union) -> Union:
    """The profiled steps as one union; without marks, from the first wait to the last."""
    if len(capture.steps):
        return union(capture.steps.begin, capture.steps.end)
    if len(waits.begin) < 2:
        return Union(waits.begin[:0], waits.end[:0])
    return Union(waits.begin[:1], waits.begin[-1:])


def phases_of(
    capture: Capture, waits: Union, thread: int | None, launched: Times, from_host: Times
) -> tuple[PhaseUse, ...]:
    """Host and device seconds per phase; they sum to the steps. Empty when the file marks no steps.

    `launched` is the device time of each host event, `from_host` the part of it that copies from the host.
    """
    steps = step_spans(capture, waits)
    if not steps.total_ns:
        return ()
    ordered = _segments(capture, waits, thread, from_host, steps)
    spent = dict.fromkeys(PHASES, 0)
    begins, ends, numbers = ordered
    for number, length in zip(numbers.tolist(), (ends - begins).tolist(), strict=True):
        spent[PHASES[number]] += length
    spent["other"] = max(steps.total_ns - sum(spent.values()), 0)
    on_device = dict.fromkeys(PHASES, 0)
    for at in np.flatnonzero(launched):
        on_device[_phase_at(ordered, int(capture.host.begin[at]))] += int(launched[at])
    return tuple(PhaseUse(name, spent[name] / 1e9, on_device[name] / 1e9) for name in PHASES)


Segments = tuple[Times, Times, Times]
"""Begin, end and number of the phase, in the order of time, without overlaps."""


def _segments(capture: Capture, waits: Union, thread: int | None, from_host: Times, steps: Union) -> Segments:
    host = capture.host
    mine = host.of("thread") == thread
    texts = capture.names.texts
    backward, optimizer, copies = (
        np.array([bool(test(text)) for text in texts], bool)
        for test in (_BACKWARD.match, _OPTIMIZER.match, _COPIES.__contains__)
    )
    name = host.of("name")
    chosen = {
        "optimizer": mine & optimizer[name],
        "backward": backward[name],
        "copy": mine & copies[name] & (from_host > 0),
        "forward": mine & (host.of("operator") == 1),
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


def _phase_at(segments: Segments, moment: int) -> str:
    begins, ends, numbers = segments
    at = int(np.searchsorted(begins, moment, side="right")) - 1
    return PHASES[int(numbers[at])] if at >= 0 and moment < ends[at] else "other"
