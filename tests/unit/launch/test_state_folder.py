"""The folder of the pages goes with its launcher, also with one that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from unstarve.launch.state_folder import state_folder


def test_a_folder_is_private_and_goes_with_its_launcher(tmp_path: Path) -> None:
    with state_folder(tmp_path) as folder:
        (folder / "a.page").write_text("")
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_launcher_left_is_removed_and_what_others_use_stays(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with state_folder(tmp_path) as folder:
        beginning = folder.name.partition(f"-{os.getpid()}-")[0]
        left, used = (tmp_path / f"{beginning}-{pid}-abc" for pid in (ended.pid, os.getppid()))
        elsewhere = tmp_path / f"unstarve-1-{ended.pid}-abc"
        for other in (left, used, elsewhere):
            other.mkdir()
        with state_folder(tmp_path):
            assert not left.exists()
        assert used.exists()
        assert elsewhere.exists()


def test_without_shared_memory_the_temporary_folder_serves(tmp_path: Path) -> None:
    with state_folder(tmp_path / "none") as folder:
        assert folder.exists()
    assert not folder.exists()
