"""The plugin for pytest, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADERS = """
import time
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        time.sleep(0.02)
        return index
"""


def run_pytest(folder: Path, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a test file with nothing but our plugin; warnings are errors, unknown markers too."""
    (folder / "test_it.py").write_text(source)
    options = ["-p", "unstarve.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", "-W", "error"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *words, "test_it.py"],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_loading_the_plugin_imports_no_torch(tmp_path: Path) -> None:
    source = "import sys\ndef test_it():\n    assert 'torch' not in sys.modules\n"
    done = run_pytest(tmp_path, source)
    assert done.returncode == 0, done.stdout
    assert "max_wait_share(share)" in run_pytest(tmp_path, source, "--markers").stdout


def test_the_fixture_fails_on_warnings_unless_they_are_ignored(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        f"""{LOADERS}
from unstarve.checks.objects import all_checks
from unstarve.model.checks import finding

def planted(subject):
    yield finding("no-workers", f"{{subject.name}} has no workers", "num_workers=2")
    yield finding("slow-start", f"{{subject.name}} starts slowly", "wait")

@pytest.fixture(autouse=True)
def one_check(monkeypatch):
    for group in ("WRONG_DATA", "CRASH_OR_HANG"):
        monkeypatch.setattr(all_checks, group, ())
    monkeypatch.setattr(all_checks, "SPEED_AND_MEMORY", (planted,))

def test_bad(unstarve_check):
    train_loader = DataLoader([1, 2])
    unstarve_check(train_loader)

def test_good(unstarve_check):
    notes = unstarve_check(DataLoader([1, 2]), ignore=["no-workers"])
    assert [one.id for one in notes] == ["slow-start"]
""",
    )
    assert "1 failed, 1 passed" in done.stdout
    assert "warning no-workers: train_loader has no workers" in done.stdout
    assert "starts slowly" not in done.stdout


def test_a_test_that_waits_too_long_fails_with_numbers(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        f"""{LOADERS}
@pytest.mark.max_wait_share(0.1)
def test_waits():
    slow_loader = DataLoader(Slow(), batch_size=1)
    for batch in slow_loader:
        pass

@pytest.mark.max_wait_share(1)
def test_may_wait():
    for batch in DataLoader(Slow(), batch_size=1):
        pass

@pytest.mark.max_wait_share(0.9)
def test_computes():
    for batch in DataLoader(list(range(6)), batch_size=1):
        time.sleep(0.2)

@pytest.mark.max_wait_share(0.5)
def test_has_no_loader():
    pass

@pytest.mark.max_wait_share(0.5)
def test_fails_itself():
    assert "its own" == "failure"

def test_is_not_recorded():
    import os
    assert "UNSTARVE_LAUNCH" not in os.environ
""",
    )
    assert "3 failed, 3 passed" in done.stdout
    assert "at most 10% is allowed: slow_loader" in done.stdout
    assert "in 5 steps" in done.stdout
    assert "no DataLoader delivered two batches" in done.stdout
    assert "AssertionError: assert 'its own' == 'failure'" in done.stdout


@pytest.mark.parametrize("given", ["", "2", "'much'", "share=0.1", "True"])
def test_a_limit_that_is_no_share_is_a_usage_error(tmp_path: Path, given: str) -> None:
    source = f"import pytest\n@pytest.mark.max_wait_share({given})\ndef test_it(): pass\n"
    done = run_pytest(tmp_path, source)
    assert done.returncode != 0
    assert "max_wait_share takes a share from 0 to 1" in done.stdout + done.stderr
