"""How a loader and its dataset are called in the user's source."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from unstarve.checks.names import names_of
from unstarve.marks import SITE


@pytest.mark.parametrize(
    ("line", "loader", "dataset"),
    [
        ("train_loader = DataLoader(train_set, batch_size=4)", "train_loader", "train_set"),
        ("self.loader = DataLoader(self.data, 4)", "loader", "self.data"),
        ("loader = DataLoader(batch_size=4, dataset=images)", "loader", "images"),
        ("val_loader = DataLoader(Images('val'), 4)", "val_loader", "val_loader.dataset"),
        ("return DataLoader(make(), 4)", "loader", "dataset"),
    ],
)
def test_names_come_from_the_line_that_created_it(
    tmp_path: Path, line: str, loader: str, dataset: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"{line}\n")
    linecache.clearcache()
    made = DataLoader([1])  # type: ignore[var-annotated, arg-type]  # a list has all a dataset needs
    vars(made)[SITE] = (str(file), 1)
    assert names_of(made) == (loader, dataset, str(file), 1)


def test_a_loader_without_a_line_has_the_name_it_was_given() -> None:
    made = DataLoader([1])  # type: ignore[var-annotated, arg-type]  # as above
    assert names_of(made, "val") == ("val", "val.dataset", None, None)
    vars(made)[SITE] = ("<stdin>", 3)
    assert names_of(made, "val") == ("val", "val.dataset", None, None)
