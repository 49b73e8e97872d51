"""Where chunks begin and end in any bytes, and what it costs to find out."""

from __future__ import annotations

import dataclasses
import gzip
import struct
import zlib
from pathlib import Path

import pytest

from hostile_runs import chunks_of, nested_headers, streams_of_one_row
from run_files import slow_loading_run, write_run
from unstarve.record import chunks
from unstarve.record import format as f
from unstarve.record import run_reader as reader
from unstarve.record.chunks import Scan, chunk
from unstarve.record.follow import Follower
from unstarve.record.run_reader import read_run
from unstarve.record.writer import Writer, reserve_chunk

VERSION_1 = Path(__file__).parents[2] / "data" / "version_1.unstarve.gz"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes per checksum that is computed."""
    found: list[int] = []
    monkeypatch.setattr(
        chunks.zlib,
        "crc32",
        lambda data, value=0, real=zlib.crc32: found.append(len(data)) or real(data, value),
    )
    return found


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_version_1_file_reads_like_the_same_run_in_version_2(tmp_path: Path) -> None:
    old = read_run(write(tmp_path / "old.unstarve", gzip.decompress(VERSION_1.read_bytes())))
    new = read_run(write_run(tmp_path / "new.unstarve", slow_loading_run(30, workers=2)))
    assert f.HEADER.unpack_from(gzip.decompress(VERSION_1.read_bytes()))[1] == 1
    assert (old.lost, old.exit_code, old.damaged) == ((), 0, False)
    assert [len(process.works) for process in old.processes] == [0, 15, 15]
    assert old.processes == new.processes
    tail = Follower(tmp_path / "old.unstarve").read()
    assert (tail.run.exit_code, len(tail.run.processes[0].batches)) == (0, 30)


@pytest.mark.parametrize(("at", "value"), [(4, 99), (8, f.SENT), (10, 200), (12, 112)])
def test_a_damaged_header_does_not_assign_its_payload_to_another_process(
    tmp_path: Path, at: int, value: int
) -> None:
    data = bytearray(write_run(tmp_path / "a.unstarve", slow_loading_run(30)).read_bytes())
    place = data.index(struct.pack("<HH", f.BATCH, f.ROW_KINDS[f.BATCH].size)) - 8
    struct.pack_into("<H", data, place + at, value)
    run = read_run(write(tmp_path / "b.unstarve", bytes(data)))
    assert run.damaged
    assert any("damaged or cut off" in message for message in run.lost)
    assert {process.pid for process in run.processes} == {100, 200}
    assert 0 < len(run.processes[0].batches) < 30


@pytest.mark.parametrize("version", [1, 2])
def test_nested_headers_are_hashed_only_a_few_times(tmp_path: Path, hashed: list[int], version: int) -> None:
    data = nested_headers(4 << 20, version)
    path = write(tmp_path / "a.unstarve", data)
    for read in (read_run, lambda run: Follower(run).read()):
        hashed.clear()
        read(path)
        assert 0 < sum(hashed) < 8 * len(data)


def test_an_implausible_header_is_not_hashed(tmp_path: Path, hashed: list[int]) -> None:
    fields = [
        (f.META, 8, 100),
        (f.META, 0, f.MOST_META_BYTES + 1),
        (f.BATCH, f.ROW_KINDS[f.BATCH].size - 1, f.ROW_KINDS[f.BATCH].size - 1),
        (f.BATCH, f.ROW_KINDS[f.BATCH].size, f.ROW_KINDS[f.BATCH].size + 1),
        (f.BATCH, f.ROW_KINDS[f.BATCH].size, 0),
        (f.MOST_KINDS, 8, 8),
        (999, 1, f.MOST_BYTES + 1),
    ]
    heads = [f.CHUNK.pack(f.SYNC, 0, kind, row_size, length, 0) for kind, row_size, length in fields]
    marks = f.SYNC * 1000 + bytes(f.CHUNK.size)
    data = f.header() + marks + b"".join(heads) + bytes(f.MOST_BYTES + 100)
    assert list(Scan(data, f.VERSION, f.HEADER.size)) == []
    assert hashed == []


def test_the_number_of_streams_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_STREAMS", 100)
    path = write(tmp_path / "a.unstarve", streams_of_one_row(36 * 300))
    held = reader._Held(None)
    assert reader._scan(path, held) == 200 * 36
    assert len(held.streams) == 100
    assert any("7200 bytes of a.unstarve" in message for message in read_run(path).lost)


def test_a_damaged_end_is_scanned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[int] = []
    monkeypatch.setattr(chunks, "Scan", lambda data, version: scans.append(len(data)) or Scan(data, version))
    path = write(tmp_path / "a.unstarve", nested_headers(1 << 16))
    follower = Follower(path)
    for _ in range(3):
        follower.read()
    assert len(scans) == 1


def test_too_many_rows_for_one_chunk_become_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f, "MOST_BYTES", 1000)
    writer = Writer(tmp_path / "p.part")
    for at in range(100):
        writer.ledger.append(f.SENT, f.ROW_KINDS[f.SENT].pack(at, 0, at, at, at, 0))
    writer.close()
    found = [c for c in chunks_of((tmp_path / "p.part").read_bytes()) if c.kind == f.SENT]
    assert [len(c.payload) // f.ROW_KINDS[f.SENT].size for c in found] == [25, 25, 25, 25]


def test_a_meta_that_is_too_large_is_recorded_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f, "MOST_META_BYTES", f.RESERVE_BYTES)
    writer = Writer(tmp_path / "p.part")
    writer.meta("sampled", found=["x" * f.RESERVE_BYTES])
    writer.close()
    assert b"too many to record" in chunks_of((tmp_path / "p.part").read_bytes())[-1].payload


def test_reserved_space_always_has_the_same_size() -> None:
    said = [reserve_chunk(1), reserve_chunk(1, "lost", message="\x1b\ud800é" * 1000)]
    assert len({len(one) for one in said}) == 1
    assert all(len(list(Scan(one, f.VERSION))) == 1 for one in said)


def test_a_chunk_that_no_reader_accepts_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="kind 2"):
        chunk(1, f.BATCH, b"")


def test_damage_does_not_change_whole_chunks(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "a.unstarve", slow_loading_run(30, workers=2))
    data = whole.read_bytes()
    spoilt = b"".join(
        b"\xf5us\nrubbish" + chunk(c.stream, c.kind, c.payload, c.row_size) for c in chunks_of(data)
    )
    run = read_run(write(tmp_path / "b.unstarve", f.header() + spoilt))
    assert run.damaged
    assert dataclasses.replace(run, path="", lost=(), damaged=False) == dataclasses.replace(
        read_run(whole), path=""
    )
