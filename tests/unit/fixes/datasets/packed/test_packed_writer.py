"""A packed file appears whole or not at all, and what was written is not lost."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from packed_samples import images, mixed, ragged
from same_batches import same
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed import packed_partial


def whole(path: Path, samples: list[Any]) -> bytes:
    with PackedWriter(path, overwrite=True) as writer:
        for i, sample in enumerate(samples):
            writer.append(sample, str(i))
    return path.read_bytes()


def test_nothing_is_there_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with PackedWriter(path) as writer:
        for sample in images(5):
            writer.append(sample)
        writer.checkpoint()
        assert not path.exists()
    assert len(PackedDataset(path)) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with PackedWriter(tmp_path / "a") as writer:
            writer.append(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [images, ragged, mixed])
@pytest.mark.parametrize("stops", [[1], [20], [7, 8, 33]])
def test_a_resumed_file_is_the_same_byte_for_byte(tmp_path: Path, make: Any, stops: list[int]) -> None:
    samples = make(40)
    expected = whole(tmp_path / "expected", samples)
    path = tmp_path / "a"
    for stop in [*stops, 40]:
        writer = PackedWriter(path, resume=True)
        for i in range(writer.count, stop):
            writer.append(samples[i], str(i))
        assert writer.leave() == stop
    with PackedWriter(path, resume=True) as writer:
        assert writer.count == 40
    assert path.read_bytes() == expected


def write_and_die(path: Path, samples: list[Any]) -> None:
    writer = PackedWriter(path, resume=True)
    for i in range(20):
        writer.append(samples[i], str(i))
        if i == 9:
            writer.checkpoint()
    for stream in writer._partial.streams.values():
        stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def told_in_another_process(path: Path) -> str:
    packed_partial._HELD.clear()  # what this process was forked off with
    with pytest.raises(UsageError) as refused:
        PackedWriter(path)
    return str(refused.value)


def test_what_was_written_behind_the_last_checkpoint_is_written_again(tmp_path: Path) -> None:
    samples = mixed(30)
    expected = whole(tmp_path / "expected", samples)
    path = tmp_path / "a"
    child = multiprocessing.get_context("fork").Process(target=write_and_die, args=(path, samples))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with PackedWriter(path, resume=True) as writer:
        assert writer.count == 10
        for i in range(10, 30):
            writer.append(samples[i], str(i))
    assert path.read_bytes() == expected


def test_without_resume_an_old_attempt_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = PackedWriter(path)
    writer.append(1)
    writer.leave()
    with PackedWriter(path) as writer:
        assert writer.count == 0
        writer.append(2)
    assert PackedDataset(path)[0] == 2


def test_position_and_words_of_the_caller_survive(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path / "a", resume=True, about={"source": "here"})
    writer.append(1)
    writer.position = [4, "x"]
    writer.leave()
    with PackedWriter(tmp_path / "a", resume=True, about={"source": "elsewhere"}) as writer:
        assert writer.position == [4, "x"]
    assert PackedDataset(tmp_path / "a").about == {"source": "here"}


def test_a_damaged_attempt_is_begun_anew(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path / "a", resume=True)
    for sample in images(5):
        writer.append(sample)
    writer.leave()
    (tmp_path / "a.partial" / "column-00").write_bytes(b"")
    with PackedWriter(tmp_path / "a", resume=True) as writer:
        assert writer.count == 0
        writer.append("new")
    assert PackedDataset(tmp_path / "a")[0] == "new"


def test_a_name_that_is_taken_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        PackedWriter(path)
    assert path.read_text() == "precious"
    with PackedWriter(path, overwrite=True) as writer:
        writer.append(1)
        assert path.read_text() == "precious"
    assert PackedDataset(path)[0] == 1


def test_a_name_taken_meanwhile_is_not_overwritten_either(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = PackedWriter(path, resume=True)
    writer.append(1)
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        writer.close()
    assert writer.leave() == 1
    assert path.read_text() == "precious"
    path.unlink()
    with PackedWriter(path, resume=True) as writer:
        assert writer.count == 1


@pytest.mark.parametrize(("name", "told"), [(".", "is a folder"), ("no/such/folder/a", "there is no folder")])
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        PackedWriter(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    other = tmp_path / "a.partial" / "thesis.tex"
    other.parent.mkdir()
    other.write_text("precious")
    with pytest.raises(UsageError, match="holds other files"):
        PackedWriter(tmp_path / "a")
    assert other.read_text() == "precious"


def test_two_writers_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with PackedWriter(path) as writer:
        with pytest.raises(UsageError, match="being written by another process"):
            PackedWriter(path)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert "being written by another process" in pool.apply(told_in_another_process, (path,))
        writer.append(1)
    with PackedWriter(path, overwrite=True) as writer:
        writer.append(2)


@pytest.mark.parametrize("make", [images, ragged])
def test_a_full_disk_loses_nothing_before_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    samples = make(30)
    expected = whole(tmp_path / "expected", samples)
    writer = PackedWriter(tmp_path / "a", resume=True)
    for i in range(12):
        writer.append(samples[i], str(i))
    writer.checkpoint()
    with monkeypatch.context() as full:
        full.setattr(packed_partial, "_write_all", _no_room)
        full.setattr(packed_partial, "_BUFFER_BYTES", 1)
        with pytest.raises(OSError, match="No space left"):
            writer.append(samples[12], "12")
        with pytest.raises(UsageError, match="has failed"):
            writer.append(samples[12], "12")
        assert writer.leave() == 12
    with PackedWriter(tmp_path / "a", resume=True) as writer:
        for i in range(writer.count, 30):
            writer.append(samples[i], str(i))
    assert (tmp_path / "a").read_bytes() == expected


def _no_room(fd: int, piece: Any) -> None:
    os.write(fd, bytes(piece[: len(piece) // 2]))
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_no_room_to_put_the_file_together_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = mixed(30)
    expected = whole(tmp_path / "expected", samples)
    writer = PackedWriter(tmp_path / "a", resume=True)
    for i, sample in enumerate(samples):
        writer.append(sample, str(i))
    writer.checkpoint()
    with monkeypatch.context() as full:
        full.setattr(
            packed_partial.AppendedFile,
            "append_file",
            lambda self, other, start: _no_room(self._fd, b"half a file"),
        )
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        assert writer.leave() == 30
    with PackedWriter(tmp_path / "a", resume=True) as writer:
        assert writer.count == 30
    assert (tmp_path / "a").read_bytes() == expected


def test_words_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="about must be serializable as JSON"):
        PackedWriter(tmp_path / "a", about={"when": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path / "a")
    writer.append(1)
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="is closed"):
        writer.append(2)


def test_large_samples_and_many_leaves_are_written_too(tmp_path: Path) -> None:
    large = images(3, 700_000)
    many = {f"leaf {i}": i for i in range(100)}
    with PackedWriter(tmp_path / "a") as writer:
        for sample in (many, *large, many):
            writer.append(sample)
    dataset = PackedDataset(tmp_path / "a", verify=True)
    assert all(same(dataset[i], sample) for i, sample in enumerate((many, *large, many)))
