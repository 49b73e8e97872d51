"""Two profiles → the operators whose time changed."""

from __future__ import annotations

from unstarve.model import OperatorChange
from unstarve.model.profile import Profile

_MOST_OPERATORS = 10
_VISIBLE_CHANGE = 0.01
"""Smallest change of an operator's time, as a share of all operators' time."""


def operator_changes(a: Profile | None, b: Profile | None) -> tuple[OperatorChange, ...]:
    """The operators whose time per step changed the most; none unless both runs were profiled."""
    if a is None or b is None:
        return ()
    on_device = bool(a.devices and b.devices)
    spent_a, spent_b = (
        {
            one.name: ((one.device_s if on_device else one.self_s) or 0.0) / max(profile.steps, 1)
            for one in profile.operators
        }
        for profile in (a, b)
    )
    names = spent_a | spent_b
    changes = [OperatorChange(name, spent_a.get(name, 0.0), spent_b.get(name, 0.0)) for name in names]
    total_s = max(sum(spent_a.values()), sum(spent_b.values()))
    large = [one for one in changes if abs(one.b_s - one.a_s) >= _VISIBLE_CHANGE * total_s > 0]
    return tuple(sorted(large, key=lambda one: -abs(one.b_s - one.a_s))[:_MOST_OPERATORS])
