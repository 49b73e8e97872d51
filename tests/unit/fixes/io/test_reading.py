"""Each claim holds for the native reader and for the one in Python, through the page cache and past it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.errors import DataFileError
from unstarve.fixes.io import reading
from unstarve.fixes.io.page_cache import evict, residency
from unstarve.fixes.io.reading import (
    LENGTH,
    MTIME,
    PATH,
    SIZE,
    FileTable,
    Names,
    blank_plan,
    read_into,
    read_plan,
)
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native reader: {why_not_native()}")


@pytest.fixture(autouse=True, params=[pytest.param("native", marks=needs_native), "python"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(reading, "native", lambda: None)
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["cached", "direct"])
def direct(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    made = []
    for size in (1, 511, 4096, 5000, 100_000, 1_500_000):
        path = tmp_path / f"{size}.bin"
        data = rng.bytes(size)
        path.write_bytes(data)
        evict(path)
        made.append((str(path), data))
    return made


def test_stretches_of_many_files_arrive_where_they_belong(
    files: list[tuple[str, bytes]], direct: bool
) -> None:
    requests = []
    expected = bytearray(3)
    for path, data in files:
        for offset, length in ((0, len(data)), (len(data) // 3, len(data) // 2), (len(data), 0)):
            requests.append((path, offset, length, len(expected)))
            expected += data[offset : offset + length]
    out = np.zeros(len(expected), np.uint8)
    outcome = read_into(requests, out, direct=direct)
    assert out.tobytes() == expected
    assert outcome.failures == []
    if not direct:
        assert outcome.direct_bytes == 0
    elif not outcome.direct_refused:
        assert outcome.direct_bytes >= len(expected) - 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_tensors_are_filled_whatever_their_type(
    files: list[tuple[str, bytes]], dtype: torch.dtype, direct: bool
) -> None:
    path, data = files[3]
    out = torch.zeros(600, dtype=dtype)
    read_into([(path, 10, out.nbytes, 0)], out, direct=direct)
    assert bytes(out.view(torch.uint8).tolist()) == data[10 : 10 + out.nbytes]


@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (2, 3), (64, 64)])
def test_any_depth_and_number_of_threads_give_the_same_bytes(
    files: list[tuple[str, bytes]], depth: int, threads: int, direct: bool
) -> None:
    path, data = files[-1]
    out = np.zeros(len(data), np.uint8)
    requests = [(path, at, min(7001, len(data) - at), at) for at in range(0, len(data), 7001)]
    read_into(requests, out, direct=direct, depth=depth, threads=threads)
    assert out.tobytes() == data


def test_longer_reads_and_deeper_queues_may_follow(files: list[tuple[str, bytes]], direct: bool) -> None:
    path, data = files[-1]
    for length, depth in ((10, 2), (30_000, 2), (30_000, 16), (1_400_000, 2), (10, 32)):
        out = np.zeros((20, length), np.uint8)
        requests = [(path, row * 1009 + 1, length, row * length) for row in range(20)]
        read_into(requests, out, direct=direct, depth=depth)
        for row, offset in enumerate(range(1, 20 * 1009, 1009)):
            assert out[row].tobytes() == data[offset : offset + length]


def test_descriptors_are_read_and_stay_open(files: list[tuple[str, bytes]], direct: bool) -> None:
    path, data = files[3]
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        out = np.zeros(3000, np.uint8)
        read_into([(fd, 1000, 2000, 1000), (fd, 0, 1000, 0)], out, direct=direct)
        assert out.tobytes() == data[:3000]
        os.fstat(fd)
    finally:
        os.close(fd)


def test_a_missing_file_is_the_error_that_open_raises(tmp_path: Path, direct: bool) -> None:
    path = str(tmp_path / "gone.bin")
    with pytest.raises(FileNotFoundError) as caught:
        read_into([(path, 0, 1, 0)], np.zeros(1, np.uint8), direct=direct)
    assert caught.value.filename == path


def test_one_bad_file_loses_nothing_of_the_others(files: list[tuple[str, bytes]], direct: bool) -> None:
    (brief, _), (path, data) = files[1], files[4]
    gone = path + ".gone"
    out = np.zeros(200_000, np.uint8)
    requests = [(path, 0, 50_000, 0), (brief, 500, 100, 60_000), (gone, 0, 9, 70_000), (path, 7, 99, 90_000)]
    with pytest.raises(DataFileError, match=r"511\.bin ends too early, after 11 of 100 bytes") as caught:
        read_into(requests, out, direct=direct)
    assert len(caught.value.__notes__) == 1
    assert "gone" in caught.value.__notes__[0]
    assert out[:50_000].tobytes() == data[:50_000]
    assert out[90_000:90_099].tobytes() == data[7:106]


def test_a_folder_cannot_be_read_and_the_error_names_it(tmp_path: Path, direct: bool) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        read_into([(str(tmp_path), 0, 1, 0)], np.zeros(1, np.uint8), direct=False)
    assert caught.value.filename == str(tmp_path)


def test_what_the_kernel_refuses_to_read_is_its_error() -> None:
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_into([("/proc/self/mem", 0, 8, 0)], np.zeros(8, np.uint8))
    assert caught.value.filename == "/proc/self/mem"


@pytest.mark.parametrize("fd", [-1, 9999])
def test_a_descriptor_that_is_not_open_is_an_error(fd: int, direct: bool) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        read_into([(fd, 0, 1, 0)], np.zeros(1, np.uint8), direct=direct)
    assert caught.value.errno == errno.EBADF


def test_a_file_that_is_not_what_it_was_is_noticed(files: list[tuple[str, bytes]], direct: bool) -> None:
    path, data = files[3]
    status = Path(path).stat()
    names = Names([path])
    plan = blank_plan(1)
    plan[0, [PATH, LENGTH, SIZE, MTIME]] = 0, 100, status.st_size, status.st_mtime_ns
    out = np.zeros(100, np.uint8)
    assert read_plan(plan, names, [out], direct=direct).failures == []
    assert out.tobytes() == data[:100]
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [failure.trouble for failure in read_plan(plan, names, [out], direct=direct).failures] == [
        reading.CHANGED
    ]
    plan[0, MTIME] = -1
    assert read_plan(plan, names, [out], direct=direct).failures == []
    plan[0, SIZE] += 1
    error = reading.error_of(read_plan(plan, names, [out], direct=direct).failures[0], path, 100)
    assert "has changed since it was inspected" in str(error)
    assert path in str(error)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (reading.PATH, 10_000, "outside the table of paths"),
        (reading.OFFSET, -1, "negative offset"),
        (reading.LENGTH, -1, "negative offset or length"),
        (reading.OFFSET, 2**63 - 1, "past any file"),
        (reading.LENGTH, 101, "past the end of its buffer"),
        (reading.LENGTH, 2**62, "past the end of its buffer"),
        (reading.TO, 1, "past the end of its buffer"),
        (reading.TO, -1, "negative offset"),
        (reading.TO, 2**63 - 1, "past the end of its buffer"),
        (reading.OUT, 1, "a buffer that does not exist"),
        (reading.OUT, -1, "a buffer that does not exist"),
    ],
)
def test_a_plan_that_points_outside_its_memory_is_refused(
    files: list[tuple[str, bytes]], column: int, value: int, message: str
) -> None:
    plan = blank_plan(1)
    plan[0, [PATH, LENGTH]] = 0, 100
    plan[0, column] = value
    with pytest.raises(ValueError, match=message):
        read_plan(plan, Names([files[3][0]]), [np.zeros(100, np.uint8)])


@pytest.mark.parametrize(
    "out", [np.zeros((4, 4), np.uint8).T[1:], torch.zeros(4, 4).T, torch.zeros(4, device="meta")]
)
def test_memory_that_cannot_be_filled_is_refused(files: list[tuple[str, bytes]], out: Any) -> None:
    with pytest.raises(ValueError, match="out must be"):
        read_into([(files[3][0], 0, 4, 0)], out)


def test_a_file_system_without_direct_reads_is_read_through_the_cache() -> None:
    out = np.zeros(5, np.uint8)
    outcome = read_into([("/proc/version", 0, 5, 0)], out, direct=True)
    assert out.tobytes() == b"Linux"
    assert outcome.direct_refused
    assert outcome.direct_bytes == 0


def test_direct_reads_leave_nothing_in_the_page_cache(files: list[tuple[str, bytes]]) -> None:
    path, data = files[-1]
    evict(path)
    if residency(path) != 0:
        pytest.skip("this file system's pages cannot be dropped or counted")
    out = np.zeros(len(data), np.uint8)
    outcome = read_into([(path, 0, len(data), 0)], out, direct=True)
    if outcome.direct_refused:
        pytest.skip("this file system has no direct reads")
    assert out.tobytes() == data
    assert residency(path) == 0
    read_into([(path, 0, len(data), 0)], out)
    assert residency(path) == 1


def test_threads_do_what_io_uring_does(files: list[tuple[str, bytes]]) -> None:
    path, data = files[-1]
    plan = blank_plan(1)
    plan[0, [PATH, LENGTH]] = 0, len(data)
    out = np.zeros(len(data), np.uint8)
    outcome = read_plan(plan, Names([path]), [out], direct=True, uring=False)
    assert not outcome.used_uring
    assert out.tobytes() == data


def test_several_threads_may_read_at_once(files: list[tuple[str, bytes]], direct: bool) -> None:
    path, data = files[4]
    outs = [np.zeros(len(data), np.uint8) for _ in range(6)]
    threads = [
        threading.Thread(target=read_into, args=([(path, 0, len(data), 0)], out), kwargs={"direct": direct})
        for out in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.tobytes() == data for out in outs)


def table_of(files: list[tuple[str, bytes]]) -> FileTable:
    """A table of files with a tensor of 8 bytes at 3, a number, and a tensor of 2 bytes at 1."""
    sizes = [len(data) for _, data in files]
    rows = np.array([[size, -1, 3, 77, 1] for size in sizes], np.int64)
    tensors, lengths = np.array([0, 2]), np.array([8, 2])
    formats = np.zeros(len(files), np.uint8)
    return FileTable(Names(path for path, _ in files), formats, rows, b"", tensors, lengths)


def test_files_of_a_table_are_read_by_their_numbers(files: list[tuple[str, bytes]]) -> None:
    outs, taken = [np.zeros((3, 8), np.uint8), np.zeros((3, 2), np.uint8)], np.zeros((3, 5), np.int64)
    outcome = table_of(files).read(np.array([4, 1, 4]), outs, taken=taken)
    assert outcome.failures == []
    for row, file in enumerate([4, 1, 4]):
        data = files[file][1]
        assert (outs[0][row].tobytes(), outs[1][row].tobytes()) == (data[3:11], data[1:3])
        assert taken[row].tolist() == [len(data), -1, 3, 77, 1]


def test_a_table_names_the_read_that_failed(files: list[tuple[str, bytes]]) -> None:
    Path(files[4][0]).unlink()
    Path(files[2][0]).write_bytes(b"another")
    outs = [np.zeros((3, 8), np.uint8), np.zeros((3, 2), np.uint8)]
    failures = table_of(files).read(np.array([4, 1, 2]), outs).failures
    assert [(one.row, one.trouble) for one in failures] == [
        (0, reading.OPEN),
        (1, reading.OPEN),
        (4, reading.CHANGED),
        (5, reading.CHANGED),
    ]
    assert outs[1][1].tobytes() == files[1][1][1:3]


@pytest.mark.parametrize("wrong", [[6], [-1], [0, 1, 2, 3]])
def test_a_table_is_never_read_past_its_end_or_its_buffers(
    files: list[tuple[str, bytes]], wrong: list[int]
) -> None:
    outs = [np.zeros((3, 8), np.uint8), np.zeros((3, 2), np.uint8)]
    with pytest.raises(ValueError, match=r"not in the table|buffer"):
        table_of(files).read(np.array(wrong), outs)


def test_paths_may_hold_anything_but_a_zero_byte(tmp_path: Path) -> None:
    path = tmp_path / "späße \udcff\n.bin"
    path.write_bytes(b"inside")
    out = np.zeros(6, np.uint8)
    read_into([(str(path), 0, 6, 0)], out)
    assert out.tobytes() == b"inside"
    assert Names(["a", str(path)]).at(2) == str(path)
    with pytest.raises(ValueError, match="zero byte"):
        read_into([("a\0b", 0, 6, 0)], out)


def test_nothing_to_read_is_read() -> None:
    assert read_into([], np.zeros(0, np.uint8)).failures == []
