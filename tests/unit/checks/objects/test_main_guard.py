"""Scripts that every new worker would run again."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, TensorDataset

from unstarve.checks.objects.main_guard import unguarded_iteration

PLAIN = "train_loader = DataLoader(data)\nfor batch in train_loader:\n    pass\n"
IN_A_FUNCTION = """
def main():
    train_loader = DataLoader(data)
    for step, batch in enumerate(train_loader):
        pass

main()
"""
GUARDED = IN_A_FUNCTION.replace("\nmain()", '\nif __name__ == "__main__":\n    main()')
ONLY_CREATED = "train_loader = DataLoader(data)\ndef train():\n    for batch in train_loader:\n        pass\n"
GUARDED_LOOP = 'train_loader = 1\nif __name__ == "__main__":\n    for batch in train_loader:\n        pass\n'


@pytest.mark.parametrize(
    ("source", "created", "line"),
    [
        (PLAIN, 1, 2),
        ("loss = 0\nit = iter(train_loader)\n", None, 2),
        ("for e in range(3):\n    for b in train_loader:\n        pass\n", None, 2),
        (IN_A_FUNCTION, 3, 7),
        (IN_A_FUNCTION.replace("\nmain()", "\nif True:\n    main()"), 3, 7),
        (GUARDED, 3, None),
        (GUARDED_LOOP, 1, None),
        (ONLY_CREATED, 1, None),
        ("for batch in other_loader:\n    pass\n", None, None),
    ],
)
def test_the_line_is_found_where_it_runs_on_import(
    source: str, created: int | None, line: int | None
) -> None:
    assert unguarded_iteration(ast.parse(source), "train_loader", created) == line


def test_only_the_main_script_of_new_workers_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    data = TensorDataset(torch.arange(4))
    spawned = DataLoader(data, num_workers=1, multiprocessing_context="spawn")
    place = {"file": str(script), "line": 1}
    assert ids(spawned, **place) == []  # another script is running
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    (found,) = findings(spawned, **place)
    assert found.id == "missing-main-guard"
    assert (
        found.message
        == "Line 2 of train.py iterates train_loader at module level, and 1 worker start by spawn."
    )
    assert ids(DataLoader(data, num_workers=1, multiprocessing_context="fork"), **place) == []
    assert ids(DataLoader(data), **place) == []
