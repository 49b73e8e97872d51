"""The Python examples of the pages on monitoring, notebooks and finding workers run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import unstarve

DOCS = Path(__file__).parents[3] / "docs"


class Anything(ModuleType):
    """A package that is not installed here: what is called in it, with which arguments."""

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self

        return call


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Anything:
    fake = Anything("fake")
    fake.calls = []
    fake.metrics = fake
    for name in ("mlflow", "wandb", "opentelemetry", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, fake)
    return fake


@pytest.mark.usefixtures("torch_as_it_was")
@pytest.mark.parametrize("page", ["monitoring.md", "notebooks.md", "find-num-workers.md"])
def test_the_examples_of_a_page_run(
    page: str, packages: Anything, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = TensorDataset(torch.arange(64))
    loader = DataLoader(dataset, batch_size=4)
    if page == "notebooks.md":
        with unstarve.recording("epoch.unstarve"):
            list(loader)
    names: dict[str, Any] = {"dataset": dataset, "loader": loader, "train": lambda batch: None}
    source = (DOCS / page).read_text().replace("budget_s=30", "budget_s=0.01")
    for block in re.findall(r"^```python\n(.*?)^```$", source, re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    if page == "monitoring.md":
        (wait,) = (call for call in packages.calls if call[0] == "create_observable_counter")
        assert wait[1][1][0](None)
