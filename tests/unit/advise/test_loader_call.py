"""The user's own call, with a change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fakes import diagnosis_of
from unstarve.advise.loader_call import edited_call
from unstarve.advise.proposal import Edit
from unstarve.model import Cause, LoaderSummary


def loader(source: str | None = None, **config: Any) -> LoaderSummary:
    return diagnosis_of(Cause.CPU, workers=0, source=source, config=config).loaders[0]


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("DataLoader(ds)", "DataLoader(ds, num_workers=8)"),
        ("DataLoader(ds, num_workers=args.n, **kw)", "DataLoader(ds, num_workers=8, **kw)"),
        ("DataLoader(ds, **kw)", "DataLoader(ds, **{**kw, 'num_workers': 8})"),
        ("DataLoader(ds, 4, True, None, None, 2)", "DataLoader(ds, 4, True, None, None, 8)"),
        ("data.DataLoader(*parts, batch_size=4)", "data.DataLoader(*parts, batch_size=4, num_workers=8)"),
        ("super().__init__(ds, shuffle=True)", "super().__init__(ds, shuffle=True, num_workers=8)"),
        ("MyLoader(1, 2, 3, 4, 5, 6)", "MyLoader(1, 2, 3, 4, 5, 6, num_workers=8)"),
        ("DataLoader(\n    ds,  # mine\n    batch_size=4,\n)", "DataLoader(ds, batch_size=4, num_workers=8)"),
    ],
)
def test_an_argument_is_set_and_the_others_are_kept(source: str, written: str) -> None:
    assert edited_call(loader(source), Edit({"num_workers": 8})) == written


def test_several_arguments_reach_one_dictionary() -> None:
    change = {"num_workers": 8, "persistent_workers": True}
    written = edited_call(loader("DataLoader(ds, **kw)"), Edit(change))
    assert written == "DataLoader(ds, **{**kw, 'num_workers': 8, 'persistent_workers': True})"


def test_arguments_that_need_workers_leave_with_them() -> None:
    source = "DataLoader(ds, num_workers=4, prefetch_factor=4, persistent_workers=True, drop_last=True)"
    assert (
        edited_call(loader(source), Edit({"num_workers": 0}))
        == "DataLoader(ds, num_workers=0, drop_last=True)"
    )


def test_a_long_call_has_an_argument_a_line_and_is_still_the_same_call() -> None:
    written = edited_call(
        loader(f"DataLoader({'x' * 40}, batch_size={'y' * 40}, **kw)"), Edit({"num_workers": 8})
    )
    assert written.splitlines()[0] == "DataLoader("
    assert written.splitlines()[-1] == ")"
    compile(written, "advice", "eval")


@pytest.mark.parametrize("source", [None, "not python(", "name_only", "a\0b"])
def test_without_a_source_the_recorded_arguments_make_the_call(source: str | None) -> None:
    made = loader(source, batch_size=16, sampler="RandomSampler", pin_memory=True)
    written = edited_call(made, Edit({"num_workers": 2}))
    call: DataLoader[Any] = eval(written, {"DataLoader": DataLoader, "dataset": torch.arange(9)})
    assert (call.batch_size, call.num_workers, call.pin_memory) == (16, 2, True)
    assert type(call.sampler).__name__ == "RandomSampler"


def test_a_batch_sampler_and_a_missing_batch_size_stay() -> None:
    sampled = loader(None, batch_sampler="MySampler", sampler="SequentialSampler")
    assert "batch_sampler=batch_sampler" in edited_call(sampled, Edit({}))
    assert edited_call(loader(None), Edit({})) == "DataLoader(dataset, batch_size=None)"
