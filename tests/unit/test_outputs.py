"""A file that the user named is written whole or not at all; a device stays a device and a link a link."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstarve import outputs
from unstarve.errors import OutputError, UsageError
from unstarve.outputs import check_output, put_in_place, real_file, write_output

Writing = Callable[[Path, bytes], None]


def as_content(path: Path, data: bytes) -> None:
    write_output(path, data)


def as_finished_file(path: Path, data: bytes) -> None:
    workshop = path.absolute().parent / "workshop"
    workshop.mkdir(exist_ok=True)
    (workshop / "finished").write_bytes(data)
    try:
        put_in_place(workshop / "finished", path)
        assert list(workshop.iterdir()) == []
    finally:
        for file in workshop.iterdir():
            file.unlink()
        workshop.rmdir()


both = pytest.mark.parametrize("write", [as_content, as_finished_file])


def read_from(fifo: Path) -> Callable[[], bytes]:
    """Start to read a pipe; what is given waits for its end."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()

    def result() -> bytes:
        reader.join(timeout=120)
        return found[0]

    return result


@both
def test_a_new_file_has_the_mode_that_open_would_give_it(tmp_path: Path, write: Writing) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write(tmp_path / "page", b"new")
    assert (tmp_path / "page").read_bytes() == b"new"
    assert (tmp_path / "page").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page", "usual"]


@both
def test_a_replaced_file_keeps_its_mode_and_owner(tmp_path: Path, write: Writing) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
    before = path.stat()
    write(path, b"new")
    after = path.stat()
    assert path.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino  # replaced, not written over


@both
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path, write: Writing) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link, second = tmp_path / "elsewhere" / "real", tmp_path / "link", tmp_path / "second"
    link.symlink_to("elsewhere/real")
    second.symlink_to(link)
    for text in (b"made", b"replaced"):  # at first the link leads to nothing
        write(second, text)
        assert (link.is_symlink(), second.is_symlink()) == (True, True)
        assert real.read_bytes() == text
    assert real_file(second) == real
    assert list((tmp_path / "elsewhere").iterdir()) == [real]


@both
def test_links_in_a_circle_are_one_sentence(tmp_path: Path, write: Writing) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match=r"cannot write .*/a: "):
        write(tmp_path / "a", b"new")


@both
def test_a_pipe_is_written_and_stays(tmp_path: Path, write: Writing) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link"):
        content = read_from(tmp_path / "pipe")
        write(path, b"x" * 200_000)
        assert content() == b"x" * 200_000
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@both
def test_a_device_is_written_and_stays(tmp_path: Path, write: Writing) -> None:
    master, slave = os.openpty()
    try:
        device = tmp_path / "device"
        device.symlink_to(os.ttyname(slave))
        write(device, b"hello")
        assert os.read(master, 100) == b"hello"
        assert stat.S_ISCHR(device.stat().st_mode)
    finally:
        os.close(master)
        os.close(slave)


def test_a_disk_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    path.write_text("data")
    monkeypatch.setattr(stat, "S_ISBLK", stat.S_ISREG)  # nobody may make a real one for a test
    with pytest.raises(OutputError, match="it is a disk"):
        write_output(path, "page")
    assert path.read_text() == "data"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_where_it_stands(tmp_path: Path, name: str) -> None:
    script = (
        "import sys; from pathlib import Path; from unstarve.outputs import write_output\n"
        f"print('before'); write_output(Path({name!r}), 'page\\n'); print('behind')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\npage\nbehind\n"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert piped.stdout == "before\npage\nbehind\n"


@both
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Writing, error: BaseException
) -> None:
    path = tmp_path / "page"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        write(path, b"new")
    if isinstance(error, OSError):
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_runs_full_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    script = f"""if True:
        import resource, signal, sys
        from pathlib import Path
        from unstarve.errors import OutputError
        from unstarve.outputs import write_output
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_output(Path({str(path)!r}), "x" * 5000)
        except OutputError as error:
            sys.exit(str(error))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == f"cannot write {path}: File too large\n"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_file_goes_to_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished, path = tmp_path / "finished", tmp_path / "page"
    finished.write_bytes(b"new")
    path.write_bytes(b"old")
    path.chmod(0o600)
    rename = Path.replace

    def only_beside(self: Path, target: Path) -> Path:
        if self == finished:
            raise OSError(18, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", only_beside)
    put_in_place(finished, path)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("check", [check_output, lambda path: write_output(path, "page")])
def test_what_cannot_be_written_is_one_sentence(tmp_path: Path, check: Callable[[Path], None]) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "page", f"there is no folder {tmp_path / 'no'}"),
        (tmp_path / "file" / "page", "Not a directory"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            check(path)
        assert str(caught.value).startswith(f"cannot write {path}: ")
        assert "\n" not in str(caught.value)
    check_output(None)
    check_output(tmp_path / "page")


@pytest.mark.parametrize(
    ("closed", "why"), [("page", "you have no write permission"), ("", "no write permission for the folder")]
)
def test_a_read_only_file_or_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str, why: str
) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    # For root nothing is read-only, so that the system's answer is given here.
    monkeypatch.setattr(outputs.os, "access", lambda asked, _mode: asked != tmp_path / closed)
    with pytest.raises(OutputError, match=why):
        write_output(path, "new")
    assert path.read_text() == "old"
