"""Damaged, truncated and hostile files end in a sentence, never in a crash or in wrong samples."""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from packed_samples import images, mixed, ragged
from same_batches import same
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.packed_contents import verify
from unstarve.fixes.datasets.packed.packed_format import FOOTER, MAGIC, Footer


def write(path: Path, samples: list[Any], named: bool = False) -> Path:
    with PackedWriter(path, overwrite=True) as writer:
        for i, sample in enumerate(samples):
            writer.append(sample, f"n{i}" if named else None)
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def index_of(data: bytes) -> dict[str, Any]:
    offset, size, *_ = FOOTER.unpack(data[-FOOTER.size :])
    index: dict[str, Any] = json.loads(data[offset : offset + size])
    return index


def with_index(data: bytes, text: bytes) -> bytes:
    """The file with another index, its checksum right: what a hostile hand would make."""
    offset = FOOTER.unpack(data[-FOOTER.size :])[0]
    return data[:offset] + text + Footer(offset, len(text), zlib.crc32(text)).pack()


@pytest.mark.parametrize("read", ["view", "pread"])
def test_a_flipped_bit_is_found_and_its_sample_named(tmp_path: Path, read: str) -> None:
    path = write(tmp_path / "a", images(20), named=True)
    flip(path, index_of(path.read_bytes())["columns"]["leaves"][0]["offset"] + 7 * 420 + 5)
    dataset = PackedDataset(path, read=read, verify=True)
    with pytest.raises(DataFileError, match=r"a: sample 7 \(n7\) is damaged: its checksum is wrong"):
        dataset[7]
    with pytest.raises(DataFileError, match="sample 7 "):
        dataset.read_batch([6, 7, 8])
    assert same(dataset[6], images(20)[6])
    assert [one.sample for one in verify(path).damaged] == [7]


def test_verify_finds_every_damaged_sample_and_only_those(tmp_path: Path) -> None:
    samples = mixed(60)
    path = write(tmp_path / "a", samples, named=True)
    sound = path.read_bytes()
    assert verify(path).damaged == ()
    limit = index_of(sound)["checksums"]["offset"]
    chosen = random.Random(0)
    for _ in range(30):
        path.write_bytes(sound)
        at = chosen.randrange(4096, limit)
        flip(path, at)
        damaged = [one.sample for one in verify(path).damaged]
        lenient = PackedDataset(path)
        for i, sample in enumerate(samples):
            try:
                kept = same(lenient[i], sample)
            except DataFileError:
                kept = False
            assert kept or i in damaged


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    found = verify(write(tmp_path / "a", ragged(9)), lambda done, total: told.append((done, total)))
    assert (found.samples, told[-1]) == (9, (9, 9))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not a packed dataset"),
        (b"hello", "is not a packed dataset"),
        (b"PK\3\4" + bytes(5000), "is not a packed dataset"),
        (MAGIC + b"\2\0" + bytes(5000), "version 2 of the packed format"),
        (MAGIC + b"\1\0", "truncated"),
        (MAGIC + b"\1\0" + bytes(5000), "truncated"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=told):
        PackedDataset(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(DataFileError, match="a is a FIFO, not a regular file"):
        PackedDataset(tmp_path / "a")


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        PackedDataset(tmp_path / "missing")


@pytest.mark.parametrize("make", [images, ragged, mixed])
def test_a_truncated_file_is_never_opened(tmp_path: Path, make: Any) -> None:
    data = write(tmp_path / "a", make(10)).read_bytes()
    for size in [*range(0, len(data), 499), len(data) - 1]:
        (tmp_path / "b").write_bytes(data[:size])
        with pytest.raises(DataFileError):
            PackedDataset(tmp_path / "b")
    (tmp_path / "b").write_bytes(data + b"\n")
    with pytest.raises(DataFileError, match="truncated or was changed"):
        PackedDataset(tmp_path / "b")


def test_a_flipped_bit_in_the_index_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a", mixed(10), named=True)
    sound = path.read_bytes()
    start = index_of(sound)["records"]["table"]["offset"]
    for at in range(start, len(sound), 23):
        data = bytearray(sound)
        data[at] ^= 0x10
        path.write_bytes(data)
        try:
            found = verify(path)
        except DataFileError:
            continue
        # Nothing but the names was hit, or a gap between tables.
        assert found.damaged == ()


EVIL: dict[str, Any] = {
    "more samples than there are": lambda index: index.update(samples=10**15),
    "fewer samples": lambda index: index.update(samples=3),
    "no number": lambda index: index.update(samples="many"),
    "a negative number": lambda index: index.update(samples=-1),
    "a huge row": lambda index: index["columns"]["leaves"][0].update(shape=[2**40, 2**40, 5]),
    "an empty row of huge sizes": lambda index: index["columns"]["leaves"][0].update(shape=[0, 2**61, 5]),
    "a shape of another kind": lambda index: index["columns"]["leaves"][0].update(shape=[3]),
    "a column outside": lambda index: index["columns"]["leaves"][0].update(offset=2**50),
    "a column in the header": lambda index: index["columns"]["leaves"][0].update(offset=0),
    "more rows": lambda index: index["columns"].update(rows=10**9),
    "an unknown type": lambda index: index["columns"].update(schema=["tensor", "__class__", 3]),
    "a type that is code": lambda index: index["columns"].update(schema=["array", "O", 3]),
    "a type of no size": lambda index: index["columns"].update(schema=["array", "|S0", 3]),
    "an unknown kind": lambda index: index["columns"].update(schema=["pickle"]),
    "another leaf": lambda index: index["columns"].update(schema={"tuple": [["int"]] * 3}),
    "a bottomless tree": lambda index: index["records"]["schemas"].__setitem__(0, nested(80)),
    "no schemas": lambda index: index["records"].update(schemas=[]),
    "a table outside": lambda index: index["records"]["table"].update(offset=2**50),
    "a table too small": lambda index: index["checksums"].update(bytes=4),
    "a missing part": lambda index: index.pop("names"),
    "a list for an object": lambda index: index.update(columns=[]),
    "no words about it": lambda index: index.update(about=None),
}


def nested(depth: int) -> Any:
    tree: Any = ["int"]
    for _ in range(depth):
        tree = {"list": [tree]}
    return tree


@pytest.mark.parametrize("evil", EVIL)
def test_a_hostile_index_is_refused(tmp_path: Path, evil: str) -> None:
    data = write(tmp_path / "a", mixed(10)).read_bytes()
    index = index_of(data)
    EVIL[evil](index)
    (tmp_path / "b").write_bytes(with_index(data, json.dumps(index).encode()))
    with pytest.raises(DataFileError, match="b is damaged"):
        PackedDataset(tmp_path / "b")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"samples": 1e400}'])
def test_an_index_that_is_no_index_is_refused(tmp_path: Path, text: bytes) -> None:
    data = write(tmp_path / "a", images(3)).read_bytes()
    (tmp_path / "b").write_bytes(with_index(data, text))
    with pytest.raises(DataFileError, match="b is damaged: its index is invalid"):
        PackedDataset(tmp_path / "b")


@pytest.mark.parametrize("make", [images, ragged, mixed])
def test_whatever_an_index_says_reading_ends_in_a_sample_or_a_sentence(tmp_path: Path, make: Any) -> None:
    data = write(tmp_path / "a", make(8), named=True).read_bytes()
    offset, size, *_ = FOOTER.unpack(data[-FOOTER.size :])
    chosen = random.Random(make.__name__)
    for _ in range(150):
        text = bytearray(data[offset : offset + size])
        for _ in range(chosen.randint(1, 3)):
            text[chosen.randrange(len(text))] = chosen.choice(b'0123456789[]{},:"-ntsaf')
        (tmp_path / "b").write_bytes(with_index(data, bytes(text)))
        try:
            dataset = PackedDataset(tmp_path / "b", read="pread")
            for i in range(len(dataset)):
                _ = dataset[i], (dataset.names or [])[i : i + 1]
        except DataFileError:
            pass


def test_a_hostile_record_allocates_no_more_than_it_holds(tmp_path: Path) -> None:
    path = write(tmp_path / "a", ["x", torch.arange(4)])
    sound = path.read_bytes()
    head = (4).to_bytes(8, "little") + bytes(8)
    at = sound.index(head + (0).to_bytes(8, "little") + (1).to_bytes(8, "little"))
    for claimed in (2**62, 2**63, 2**64 - 1, 0, 5):
        path.write_bytes(sound[:at] + claimed.to_bytes(8, "little") + sound[at + 8 :])
        with pytest.raises(
            DataFileError, match=r"a: sample 1 is damaged: (its leaves are|a tensor is larger)"
        ):
            PackedDataset(path)[1]
