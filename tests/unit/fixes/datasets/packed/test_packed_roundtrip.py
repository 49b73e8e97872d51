"""What comes out of a packed file is what went in."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packed_samples import NUMPY_TYPES, ONE_OF_EACH, TORCH_TYPES, images, mixed, ragged
from same_batches import same
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_file import PackedFile
from unstarve.fixes.datasets.packed.packed_format import FOOTER, MAGIC, RECORD

READS = ["view", "pread", "direct", "auto"]


def packed(folder: Path, samples: list[Any], names: list[str] | None = None) -> Path:
    path = folder / "data.packed"
    with PackedWriter(path, overwrite=True) as writer:
        for i, sample in enumerate(samples):
            writer.append(sample, None if names is None else names[i])
    return path


def opened(path: Path, read: str, **more: Any) -> PackedDataset:
    if read == "direct" and PackedFile(str(path)).direct_fd is None:
        pytest.skip("a file system without O_DIRECT")
    return PackedDataset(path, read=read, **more)


def index_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    offset, size, *_ = FOOTER.unpack(data[-FOOTER.size :])
    index: dict[str, Any] = json.loads(data[offset : offset + size])
    return index


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("make", [images, ragged, mixed])
def test_samples_come_back_as_they_were(tmp_path: Path, read: str, make: Any) -> None:
    samples = make(50)
    dataset = opened(packed(tmp_path, samples), read, verify=True)
    assert len(dataset) == 50
    assert all(same(dataset[i], samples[i]) for i in (*range(50), -1, -50))
    order = [49, 0, 7, 7, 8, 9, -3]
    assert all(same(a, samples[i]) for a, i in zip(dataset.__getitems__(order), order, strict=True))


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_every_kind_of_value_is_kept(tmp_path: Path, kind: str) -> None:
    value = ONE_OF_EACH[kind]
    samples = [value, (value, 1), {"key": [value]}, value, "something else", value]
    dataset = PackedDataset(packed(tmp_path, samples), verify=True)
    for i, sample in enumerate(samples):
        assert same(dataset[i], sample)


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_every_type_of_tensor_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    samples = [(torch.arange(6).reshape(2, 3) * i).to(dtype) for i in range(3)]
    dataset = PackedDataset(packed(tmp_path, [*samples, samples[0][0]]))
    assert all(same(dataset[i], samples[i]) for i in range(3))
    assert same(dataset[3], samples[0][0])


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_every_type_of_array_is_kept(tmp_path: Path, dtype: str) -> None:
    samples = [(np.arange(6).reshape(2, 3) * i).astype(dtype) for i in range(3)]
    dataset = PackedDataset(packed(tmp_path, [*samples, samples[0][0]]))
    assert all(same(dataset[i], samples[i]) for i in range(3))
    assert same(dataset[3], samples[0][0])


def test_memory_that_is_not_contiguous_is_packed_as_it_reads(tmp_path: Path) -> None:
    grid = torch.arange(12.0).reshape(3, 4)
    conjugated = torch.tensor([1 + 2j]).conj()
    samples = [(grid.t(), grid.numpy().T, grid[::2, 1], conjugated, torch.zeros(()).expand(5))]
    assert same(PackedDataset(packed(tmp_path, samples))[0], samples[0])


def test_a_sample_is_the_callers_own(tmp_path: Path) -> None:
    samples = [*images(3), *ragged(3)]
    for read in ("view", "pread"):
        dataset = PackedDataset(packed(tmp_path, samples), read=read, verify=True)
        dataset[0][0].zero_()
        dataset[4]["tokens"].zero_()
        next(iter(dataset.__getitems__([0, 1])))[0].zero_()
        assert same(dataset[0], samples[0])
        assert same(dataset[4], samples[4])


Point = namedtuple("Point", "x y")
REFUSED: dict[str, tuple[Any, str]] = {
    "an object": (
        ({"a": [object()]},),
        r"sample 0 cannot be packed: \[0\]\['a'\]\[0\] is of type object; return",
    ),
    "a named tuple": (Point(1, 2), "it is of type .*Point"),
    "an ordered dict": (OrderedDict(a=1), "it is of type collections.OrderedDict"),
    "a set": ({1}, "it is of type set"),
    "a key that is no text": ({(1, 2): 3}, "a key of type tuple; use str or int keys"),
    "a path": (Path("x"), "it is of type pathlib.*Path"),
    "a parameter": (
        torch.nn.Parameter(torch.ones(1)),
        "come back as a plain tensor; return value.as_subclass",
    ),
    "gradients": (torch.ones(1, requires_grad=True), "requires gradients; return value.detach"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
    "a tensor elsewhere": (torch.empty(2, device="meta"), r"on meta; return value.cpu\(\)"),
    "objects in an array": (np.array([object()]), "an array of type object"),
    "a structured array": (np.zeros(2, [("a", "f4")]), "an array of type"),
    "a huge int": (10**5000, "over 4000 digits"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_packed_is_named_and_the_writer_goes_on(tmp_path: Path, kind: str) -> None:
    value, told = REFUSED[kind]
    with PackedWriter(tmp_path / "a") as writer:
        with pytest.raises(UsageError, match=told):
            writer.append(value)
        writer.append(1)
    assert PackedDataset(tmp_path / "a")[0] == 1


def test_a_sample_nested_without_end_is_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    with PackedWriter(tmp_path / "a") as writer:
        with pytest.raises(UsageError, match="nested more than 64 deep"):
            writer.append(endless)
        writer.append(deep)
    assert PackedDataset(tmp_path / "a")[0] == deep


def test_alike_samples_lie_in_columns_that_can_be_mapped(tmp_path: Path) -> None:
    index = index_of(packed(tmp_path, images(10, 100)))
    assert index["records"] is None
    assert index["columns"]["rows"] == 10
    assert index["columns"]["schema"] == {"tuple": [["tensor", "float32", 1], ["int"]]}
    assert [leaf["offset"] % 4096 for leaf in index["columns"]["leaves"]] == [0, 0]


def test_records_are_aligned_by_their_size(tmp_path: Path) -> None:
    samples = [b"x" * size for size in (10, 100_000, 5000, 70_000, 0, 65_536)]
    path = packed(tmp_path, samples)
    table = index_of(path)["records"]["table"]
    rows = np.frombuffer(path.read_bytes()[table["offset"] :][: table["bytes"]], RECORD)
    assert [row["offset"] % (4096 if row["size"] >= 65_536 else 64) for row in rows] == [0] * 6
    padding = path.stat().st_size - sum(map(len, samples))
    assert padding < 25_000  # header, gaps, tables, index
    assert all(same(PackedDataset(path)[i], sample) for i, sample in enumerate(samples))


def test_the_file_begins_and_ends_with_its_name(tmp_path: Path) -> None:
    data = packed(tmp_path, images(1)).read_bytes()
    assert data.startswith(MAGIC + struct.pack("<H", 1))
    assert data.endswith(MAGIC)


def test_nothing_at_all_can_be_packed(tmp_path: Path) -> None:
    dataset = PackedDataset(packed(tmp_path, []))
    assert len(dataset) == 0
    assert dataset.rows() is None
    with pytest.raises(IndexError, match="sample 0 is out of range"):
        dataset[0]


def test_names_and_words_about_the_source_are_kept(tmp_path: Path) -> None:
    names = ["a/1.jpg", "", "ü\ud8ff", "d"]
    path = packed(tmp_path, images(4), names)
    assert list(PackedDataset(path).names or ()) == names
    assert (PackedDataset(path).names or ())[-2:] == names[-2:]
    with PackedWriter(path, overwrite=True, about={"classes": ["cat", "dog"], "source": "x"}) as writer:
        writer.append(1)
    dataset = PackedDataset(path)
    assert (dataset.names, dataset.classes, dataset.about["source"]) == (None, ["cat", "dog"], "x")


def test_all_samples_have_a_name_or_none_has(tmp_path: Path) -> None:
    with PackedWriter(tmp_path / "a") as writer:
        writer.append(1, "one")
        with pytest.raises(UsageError, match="all samples must have a name, or none"):
            writer.append(2)
        writer.append(2, "two")
    assert list(PackedDataset(tmp_path / "a").names or ()) == ["one", "two"]
