"""A few epochs of the soak: counts of processes, threads, descriptors and shared memory stay as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "soak.py"
ROWS = ("gather, CachedDataset in a file", "gather, packed in each epoch", "ring")


@pytest.mark.skipif(sys.platform != "linux", reason="counts are read from /proc")
def test_disturbed_epochs_leave_nothing_behind(tmp_path: Path) -> None:
    answer = tmp_path / "rows.json"
    command = [sys.executable, str(SCRIPT), "--epochs", "1", "--json", str(answer), "--only", *ROWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=380)
    assert answer.exists(), done.stdout + done.stderr
    rows = json.loads(answer.read_text())
    assert [row["name"] for row in rows] == list(ROWS)
    problems = {row["name"]: [p for p in row["problems"] if "resident" not in p] for row in rows}
    assert problems == {name: [] for name in ROWS}
    assert all(row["epochs"]["few_descriptors"] == row["epochs"]["interrupted"] == 2 for row in rows)
