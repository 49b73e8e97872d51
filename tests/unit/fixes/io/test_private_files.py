"""What is opened by a name that anybody could have taken is ours, or is refused before it is touched."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from unstarve.fixes.io.private_files import NotOursError, open_private, open_private_folder, others_can_write

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users and links as on Unix")


def opened(path: Path, flags: int = os.O_RDWR) -> os.stat_result:
    fd = open_private(path, flags, create=True)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def opened_folder(path: Path) -> os.stat_result:
    fd = open_private_folder(path)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def link(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    path.symlink_to("victim")


def hard_link(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    path.hardlink_to(path.parent / "victim")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


TAKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (link, "is a symbolic link"),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), "is a symbolic link"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "is a symbolic link"),
    "a hard link": (hard_link, "is a hard link"),
    "a fifo": (os.mkfifo, "is not a regular file"),
    "a socket": (listening, "is not a regular file"),
    "a folder": (Path.mkdir, "is not a regular file"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str) -> None:
    plant, told = TAKEN[kind]
    plant(tmp_path / "name")
    with pytest.raises(NotOursError, match=f"name {told}"):
        opened(tmp_path / "name")
    assert not (tmp_path / "nothing").exists()
    if (tmp_path / "victim").exists():
        assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_is_made_for_us_alone_and_found_again(tmp_path: Path) -> None:
    assert opened(tmp_path / "name").st_mode & 0o777 == 0o600
    assert opened(tmp_path / "name").st_ino == (tmp_path / "name").stat().st_ino
    with pytest.raises(FileNotFoundError):
        open_private(tmp_path / "other", os.O_RDONLY)


def test_another_users_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "name").write_text("theirs")
    (tmp_path / "folder").mkdir()
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(NotOursError, match="name belongs to another user"):
        opened(tmp_path / "name", os.O_RDONLY)
    with pytest.raises(NotOursError, match="folder belongs to another user"):
        open_private_folder(tmp_path / "folder")
    assert others_can_write(tmp_path / "folder")
    opened(tmp_path / "made now")  # ours, although the file system gives it to somebody else
    opened_folder(tmp_path / "made")


def test_a_second_name_of_our_file_does_not_matter_to_a_reader(tmp_path: Path) -> None:
    hard_link(tmp_path / "name")
    os.close(open_private(tmp_path / "name", os.O_RDONLY))


def test_a_folder_is_for_us_alone_from_now_on(tmp_path: Path) -> None:
    assert opened_folder(tmp_path / "folder").st_mode & 0o777 == 0o700
    (tmp_path / "folder").chmod(0o775)
    assert others_can_write(tmp_path / "folder")
    opened_folder(tmp_path / "folder")
    assert not others_can_write(tmp_path / "folder")
    (tmp_path / "link").symlink_to("folder")
    with pytest.raises(NotOursError, match="link is a symbolic link"):
        open_private_folder(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotOursError, match="file is not a folder"):
        open_private_folder(tmp_path / "file")
