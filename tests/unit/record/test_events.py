"""What a row says arrives in the event, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from unstarve.record import format as f
from unstarve.record.events import EVENT_OF, epochs_of, events_of
from unstarve.record.row_fields import I32, I64

RENAMED = {"used_bytes": "memory_used_bytes", "total_bytes": "memory_total_bytes"}
TOLD_OTHERWISE = {"flags", "percent", "wait", "doing", "pressure", "jpeg_percent"}
"""Flags and codes: an event has words for them."""


def numbered(kind: int) -> Any:
    """A valid row whose fields all differ; times grow from field to field."""
    row = f.ROWS[kind]._make(range(11, 11 + len(f.ROWS[kind]._fields)))
    row = row._replace(**dict.fromkeys(TOLD_OTHERWISE & set(row._fields), 0))
    return row._replace(stall_ns=1) if isinstance(row, f.StallRow) else row  # a stall is part of its wait


@pytest.mark.parametrize("kind", EVENT_OF)
def test_every_field_arrives_under_its_name(kind: int) -> None:
    row = numbered(kind)
    ((event,), invalid) = events_of(kind, [(f.ROW_KINDS[kind].size, f.ROW_KINDS[kind].pack(*row))])
    fields = [name for name in row._fields if name not in TOLD_OTHERWISE]
    assert invalid == 0
    assert {n: getattr(event, RENAMED.get(n, n)) for n in fields} == {n: getattr(row, n) for n in fields}


@pytest.mark.parametrize("kind", EVENT_OF)
def test_in_a_signed_field_minus_one_is_unknown_or_nothing(kind: int) -> None:
    signed = [n for n, declared in f.ROWS[kind].__annotations__.items() if declared in (I32, I64)]
    row = numbered(kind)._replace(**dict.fromkeys(signed, -1))
    ((event,), _) = events_of(kind, [(f.ROW_KINDS[kind].size, f.ROW_KINDS[kind].pack(*row))])
    names = [RENAMED.get(name, name) for name in signed if name not in TOLD_OTHERWISE]
    assert all(getattr(event, name) in (None, 0) for name in names)


def test_an_epoch_is_made_of_three_rows() -> None:
    begin = f.EpochBeginRow(1, f.NESTED, 2, 3, begin_ns=10, ready_ns=20)
    end = f.EpochEndRow(1, 0, 2, ask_ns=30, end_ns=40, error=b"KeyError")
    sampler = f.EpochSamplerRow(1, 0, 2, sampler_ns=7)
    ((epoch,), invalid) = epochs_of([begin], [end], [sampler])
    assert invalid == 0
    assert (epoch.loader, epoch.epoch, epoch.thread, epoch.nested) == (1, 2, 3, True)
    assert (epoch.begin_ns, epoch.ready_ns, epoch.last_ask_ns, epoch.end_ns) == (10, 20, 30, 40)
    assert (epoch.error, epoch.sampler_ns) == ("KeyError", 7)


def test_the_layouts_of_rows_are_those_of_version_2_and_3() -> None:
    """Files in the wild have them: a field may be appended, never moved."""
    layouts = {kind: f.letters(kind) for kind in f.ROWS}
    assert layouts == {
        2: "HHIIIiqQQIIiiQQqQq",
        3: "HHIIQQ",
        4: "HHIQQ32s",
        5: "HHIIHHQQQ",
        6: "HHQiqq",
        7: "HHQqqqqqqq",
        8: "HHIQ",
        10: "HHIIIQQQQqqqqqqqqqqqqqI",
        11: "IIQQQq",
        12: "HHIIQQQ",
        13: "IIQH",
        14: "HHI",
        15: "IQ",
        16: "IQQQQQQQ",
        17: "IIIIIIIIIII",
        20: "Qqqqqqqqqqiq",
        21: "HHHIIIqQIQI",
        22: "HHIIII",
        23: "HHIIHIQQQQQ",
        24: "HHQqqqi",
    }
