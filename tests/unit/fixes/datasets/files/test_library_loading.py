"""What torch, numpy and safetensors write is read alike by the native part and by these libraries."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hostile_files import archive, npy, safetensors, tensor
from same_batches import same
from tensor_files import write_safetensors
from unstarve import TensorFileDataset
from unstarve.errors import DataFileError, MissingExtraError
from unstarve.fixes.datasets.files.library_loading import load_file
from unstarve.fixes.io.formats import PT, UNSUPPORTED, Answer

pytestmark = pytest.mark.usefixtures("readers")

NUMPY_TYPES = [
    "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "complex128", "uint16", "uint32", "uint64", ">f4",
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 2)])
def test_an_array_is_a_tensor(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    np.save(tmp_path / "sample.npy", array)
    expected = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    assert same(TensorFileDataset(tmp_path)[0], expected)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_numpys_format_is_read(version: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "sample.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(4), version=version)
    assert same(TensorFileDataset(tmp_path)[0], torch.arange(4))


@pytest.mark.parametrize(
    "array",
    [np.array(["a", "b"]), np.zeros(2, [("a", "f4"), ("b", "i4")]), np.ones(2, "M8[s]"), np.array([{}, 1])],
    ids=["strings", "records", "dates", "objects"],
)
def test_an_array_that_is_no_tensor_is_named(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "sample.npy", array, allow_pickle=True)
    with pytest.raises(DataFileError, match=r"sample\.npy cannot be loaded: "):
        TensorFileDataset(tmp_path)[0]


@pytest.mark.parametrize("metadata", [False, True])
def test_a_safetensors_file_is_a_dict_in_the_order_of_the_file(metadata: bool, tmp_path: Path) -> None:
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.arange(3),
        "half": torch.ones(4).bfloat16(),
        "ünicode 🙂\n": torch.ones(2, dtype=torch.float8_e4m3fn),
        "empty": torch.empty(0, 3),
        "single": torch.tensor(True),
    }
    write_safetensors(tmp_path / "sample.safetensors", tensors, metadata)
    assert same(TensorFileDataset(tmp_path)[0], tensors)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}}',
        b'{"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}',
        b'{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"X9","shape":[4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4]}}',
        b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[' + b"1," * 70 + b'4],"data_offsets":[0,16]}}',
        b'{"__metadata__":[]}',
        b'{"\\ud800":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        b'{"\xff":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        b'{"a":' * 2000,
    ],
)
def test_a_damaged_safetensors_header_is_named(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "sample.safetensors").write_bytes(safetensors(header))
    with pytest.raises(DataFileError, match=r"sample\.safetensors cannot be loaded: "):
        TensorFileDataset(tmp_path)[0]


@pytest.mark.parametrize("shape", [(0, 10**18 - 1, 10**18 - 1), (2**31, 0, 2**32), (2**40, 2**40), (2**62,)])
@pytest.mark.parametrize("suffix", [".pt", ".npy", ".safetensors"])
def test_no_tensor_is_larger_than_a_file_not_even_an_empty_one(
    shape: tuple[int, ...], suffix: str, tmp_path: Path
) -> None:
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
    contents = {
        ".pt": archive(b"\x80\x02" + tensor(shape) + b"."),
        ".npy": npy(str(shape)),
        ".safetensors": safetensors(json.dumps(header).encode(), data=0),
    }
    path = tmp_path / f"large{suffix}"
    path.write_bytes(contents[suffix])
    with pytest.raises(DataFileError, match=rf"large{suffix} cannot be loaded: "):
        TensorFileDataset([path])[0]


@pytest.mark.parametrize("shape", ["(1000000,)", "(-4,)", "(1099511627776, 1024)"])
def test_an_array_with_more_elements_than_its_file_is_named(shape: str, tmp_path: Path) -> None:
    for descr in ("<f4", ">f4"):
        (tmp_path / "sample.npy").write_bytes(npy(shape, descr))
        with pytest.raises(DataFileError, match=r"sample\.npy cannot be loaded: "):
            TensorFileDataset(tmp_path)[0]


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_nothing_is_executed(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = pickle.dumps(Evil(), protocol=2)
    objects = npy("(1,)", "|O", 0) + program
    for content in (program, archive(program) if suffix == ".pt" else objects):
        Path(f"evil{suffix}").write_bytes(content)
        with pytest.raises(DataFileError, match=rf"evil{suffix} cannot be loaded"):
            TensorFileDataset([f"evil{suffix}"])[0]
    assert not Path("executed").exists()


def test_safetensors_is_asked_for_only_without_the_native_part(
    readers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    write_safetensors(tmp_path / "sample.safetensors", {"x": torch.ones(2)})
    dataset = TensorFileDataset(tmp_path)
    if readers == "native":
        assert same(dataset[0], {"x": torch.ones(2)})
        return
    with pytest.raises(MissingExtraError, match=r"pip install 'unstarve\[safetensors\]'"):
        dataset[0]


def test_the_reasons_of_the_finder_and_of_the_library_are_given(tmp_path: Path) -> None:
    path = tmp_path / "broken.pt"
    path.write_bytes(archive(b"("))
    with pytest.raises(DataFileError, match=r"broken\.pt cannot be loaded: REASON; its own library says: "):
        load_file(str(path), PT, Answer(UNSUPPORTED, 0, "REASON", [], 0, 0))
