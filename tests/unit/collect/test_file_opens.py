"""Counting the files that a fetch opens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from unstarve.collect import file_opens as opens


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    opens.install()
    opens.folders.clear()
    opens.count = 0
    yield
    opens.counting = False


def test_only_opens_during_a_fetch_count(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    opens.counting = True
    path.read_text()
    with open(str(path)):  # noqa: PTH123 - both ways of opening are meant
        pass
    os.close(os.open(path, os.O_RDONLY))
    opens.counting = False
    path.read_text()
    assert opens.count >= 2
    assert opens.folders == {str(tmp_path): opens.count}


def test_relative_paths_are_told_by_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("x")
    opens.counting = True
    Path("a").read_text()
    opens.counting = False
    assert opens.folders == {str(tmp_path): 1}


def test_a_descriptor_is_not_a_file_opened(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    fd = os.open(path, os.O_RDONLY)
    opens.counting = True
    with os.fdopen(fd):
        pass
    assert opens.count == 0


def test_a_current_folder_that_is_gone_is_the_users_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    opens.counting = True
    with pytest.raises(FileNotFoundError, match="relative"):
        open("relative")  # noqa: PTH123, SIM115 - it does not open
    assert opens.count == 1


def test_folders_are_listed_up_to_a_limit(tmp_path: Path) -> None:
    opens.counting = True
    for number in range(opens._MOST_FOLDERS + 50):
        with pytest.raises(FileNotFoundError):
            open(f"/none/{number}/file")  # noqa: PTH123, SIM115 - it does not open
    opens.counting = False
    assert opens.count == opens._MOST_FOLDERS + 50
    assert len(opens.folders) == opens._MOST_FOLDERS


def test_the_last_data_file_is_kept(tmp_path: Path) -> None:
    data, code, written = tmp_path / "a.bin", tmp_path / "a.py", tmp_path / "b.bin"
    for path in (data, code):
        path.write_text("x")
    opens.counting, opens.last = True, None
    data.read_text()
    code.read_text()
    written.write_text("y")
    Path("/proc/self/stat").read_text()
    assert opens.last == str(data)
