"""Layouts that the native part finds in files; what the libraries do instead is tested with the dataset."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hostile_files import archive, npy, safetensors, tensor
from same_batches import same
from tensor_files import LEFT_TO_TORCH, PLAIN, damaged_copies, write_safetensors
from unstarve.errors import DataFileError
from unstarve.fixes.io import formats
from unstarve.fixes.io.formats import DAMAGED, LAYOUT, NO_FILE, UNSUPPORTED, Answer, error_of, find_layouts
from unstarve.fixes.io.reading import Names
from unstarve.fixes.samples.file_structure import number, structure_of
from unstarve.native import native, why_not_native

pytestmark = pytest.mark.skipif(native() is None, reason=f"native formats: {why_not_native()}")


def look(*paths: Path, direct: bool = False) -> list[Answer]:
    names = Names(str(path) for path in paths)
    codes = np.array([formats.format_of(str(path)) for path in paths], np.uint8)
    return find_layouts(names, names.starts, codes, direct=direct)


def sample_in(path: Path, answer: Answer) -> Any:
    """Build the sample from the file's bytes by the layout that was found."""
    structure = structure_of(answer.text)
    assert structure is not None
    data = path.read_bytes()
    values = []
    for leaf, column in zip(structure.leaves, answer.columns, strict=True):
        if leaf.dtype is None:
            values.append(number(leaf, column))
            continue
        content = bytearray(data[column : column + leaf.row_bytes])
        assert len(content) == leaf.row_bytes
        flat = torch.frombuffer(content, dtype=leaf.dtype) if content else torch.empty(0, dtype=leaf.dtype)
        values.append(flat.reshape(leaf.shape))
    return structure.sample(values)


@pytest.mark.parametrize(
    ("name", "direct"), [*((name, False) for name in PLAIN), ("tensor", True), ("many", True)]
)
def test_what_torch_saved_is_found(name: str, direct: bool, tmp_path: Path) -> None:
    path = tmp_path / "sample.pt"
    torch.save(PLAIN[name], path)
    (answer,) = look(path, direct=direct)
    assert (answer.found, answer.size_bytes) == (LAYOUT, path.stat().st_size)
    assert answer.mtime_ns == path.stat().st_mtime_ns
    assert same(sample_in(path, answer), torch.load(path, weights_only=True))


@pytest.mark.parametrize("name", LEFT_TO_TORCH)
def test_what_only_torch_can_load_is_left_to_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.pt"
    torch.save(LEFT_TO_TORCH[name], path)
    (answer,) = look(path)
    assert answer.found == UNSUPPORTED
    assert answer.text


def test_the_old_format_and_other_pickles_are_left_to_torch(tmp_path: Path) -> None:
    old, protocol_4, bare = (tmp_path / name for name in ("old.pt", "new.pt", "bare.pt"))
    torch.save(torch.ones(3), old, _use_new_zipfile_serialization=False)
    torch.save(torch.ones(3), protocol_4, pickle_protocol=4)
    bare.write_bytes(pickle.dumps({"x": 1}))
    assert [answer.found for answer in look(old, protocol_4, bare)] == [UNSUPPORTED] * 3


def rewritten(path: Path, compression: int = zipfile.ZIP_STORED, **changed: bytes) -> None:
    """Write the archive anew with other contents for some of its records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, changed.get(name.rpartition("/")[2].replace(".", "_"), content))


def test_archives_that_were_written_otherwise_are_left_to_torch(tmp_path: Path) -> None:
    packed, big_endian, script = (tmp_path / name for name in ("packed.pt", "big.pt", "script.pt"))
    for path in (packed, big_endian, script):
        torch.save(torch.ones(3000), path)
    rewritten(packed, zipfile.ZIP_DEFLATED)
    rewritten(big_endian, byteorder=b"big")
    with zipfile.ZipFile(script, "a") as archive:
        archive.writestr(f"{script.stem}/constants.pkl", b"")
    assert [answer.found for answer in look(packed, big_endian, script)] == [UNSUPPORTED] * 3


def test_an_archive_rewritten_without_compression_is_found(tmp_path: Path) -> None:
    path = tmp_path / "again.pt"
    torch.save(torch.arange(5), path)
    rewritten(path)
    (answer,) = look(path)
    assert torch.equal(sample_in(path, answer), torch.arange(5))


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pt"
    torch.save(torch.ones(2), path)
    rewritten(path, data_pkl=pickle.dumps((Evil(), torch.Size([1])), protocol=2))
    (answer,) = look(path)
    assert answer.found == UNSUPPORTED
    assert not (tmp_path / "executed").exists()


def with_pickle(path: Path, program: bytes) -> Answer:
    torch.save(torch.ones(2), path)
    rewritten(path, data_pkl=program)
    (answer,) = look(path)
    return answer


def test_a_pickle_that_asks_for_much_memory_gets_none(tmp_path: Path) -> None:
    laughs = b"\x80\x02](K\x01K\x02eq\x00" + b"".join(
        b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60)
    )
    nest = b"\x80\x02" + b"]" * 100 + b"a" * 99
    loop = b"\x80\x02]q\x00h\x00a"
    memo = b"\x80\x02Nr\xff\xff\xff\x7f"
    text = b"\x80\x02X\xff\xff\xff\x7f"
    for program in (laughs, nest, loop, memo, text):
        assert with_pickle(tmp_path / "hostile.pt", program + b".").found == UNSUPPORTED


@pytest.mark.parametrize(
    "program", [b"", b".", b"(", b"N", b"NN.", b"t.", b"a.", b"](a.", b"}K\x01s.", b"h\x07.", b"R.", b"(N."]
)
def test_a_pickle_that_makes_no_sense_is_left_to_torch(program: bytes, tmp_path: Path) -> None:
    assert with_pickle(tmp_path / "broken.pt", program).found == UNSUPPORTED


def test_a_tensor_larger_than_its_storage_is_damage(tmp_path: Path) -> None:
    for shape in ((3,), (2**62, 2), (2, 2**61)):
        program = io.BytesIO()
        torch.save(torch.ones(2), program)
        with zipfile.ZipFile(program) as archive:
            content = archive.read("archive/data.pkl")
        sizes = b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", size) for size in shape) + b"t"
        strides = b"(" + b"".join(
            b"\x8a\x08" + struct.pack("<q", int(np.prod(shape[i + 1 :], dtype=object)))
            for i in range(len(shape))
        )
        grown = content.replace(b"K\x02\x85q\x06K\x01\x85q\x07", sizes + b"q\x06" + strides + b"tq\x07")
        assert grown != content
        assert with_pickle(tmp_path / "large.pt", grown).found == DAMAGED


TOO_LARGE = [(0, 10**18 - 1, 10**18 - 1), (2**31, 0, 2**32), (2**40, 2**40), (2**62,)]


@pytest.mark.parametrize("shape", TOO_LARGE)
def test_no_tensor_is_larger_than_a_file_not_even_an_empty_one(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
    contents = {
        ".pt": archive(b"\x80\x02" + tensor(shape) + b"."),
        ".npy": npy(str(shape)),
        ".safetensors": safetensors(json.dumps(header).encode()),
    }
    for suffix, content in contents.items():
        path = tmp_path / f"large{suffix}"
        path.write_bytes(content)
        (answer,) = look(path)
        assert (answer.found, answer.text) == (DAMAGED, "a tensor is larger than any file")
    with pytest.raises(ValueError, match="too big"):  # numpy agrees
        np.empty(shape, np.float32)


def test_empty_tensors_of_large_sizes_that_torch_makes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "empty.npy"
    path.write_bytes(npy("(0, 1000000000000000, 3)"))
    (answer,) = look(path)
    assert sample_in(path, answer).shape == (0, 10**15, 3)


NUMPY_TYPES = [
    "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "complex128", "uint16", "uint32", "uint64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 2)])
def test_what_numpy_saved_is_found(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "sample.npy"
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    np.save(path, array)
    (answer,) = look(path)
    assert answer.found == LAYOUT
    assert same(sample_in(path, answer), torch.from_numpy(array))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_numpys_format_is_found(version: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "sample.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.arange(4), version=version)
    (answer,) = look(path)
    assert torch.equal(sample_in(path, answer), torch.arange(4))


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.ones((2, 3))),
        np.ones(3, ">f4"),
        np.array(["a", "b"]),
        np.zeros(2, [("a", "f4"), ("b", "i4")]),
        np.ones(2, "M8[s]"),
    ],
    ids=["fortran", "big-endian", "strings", "records", "dates"],
)
def test_arrays_that_are_no_tensors_are_left_to_numpy(array: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "sample.npy"
    np.save(path, array)
    assert look(path)[0].found == UNSUPPORTED


def test_a_truncated_array_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "sample.npy"
    np.save(path, np.ones(1000))
    whole = path.read_bytes()
    for size in (0, 5, 9, 100, 500, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert look(path)[0].found == DAMAGED
        assert str(path) in str(error_of(look(path)[0], str(path)))


@pytest.mark.parametrize("metadata", [False, True])
def test_what_safetensors_saved_is_found(metadata: bool, tmp_path: Path) -> None:
    path = tmp_path / "sample.safetensors"
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.arange(3),
        "half": torch.ones(4).bfloat16(),
        "ünicode 🙂\n": torch.ones(2, dtype=torch.float8_e4m3fn),
        "empty": torch.empty(0, 3),
        "single": torch.tensor(True),
    }
    write_safetensors(path, tensors, metadata)
    (answer,) = look(path)
    assert same(sample_in(path, answer), tensors)


def header_file(path: Path, text: bytes, data: int = 16) -> Path:
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return path


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}}',
        b'{"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}',
        b'{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[04],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"X9","shape":[4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4]}}',
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":"x"}}',
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
        b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]}}',
        b'{"__metadata__":{"a":1}}',
        b'{"__metadata__":[]}',
        b'{"\\ud800":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        b'{"\xff":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}} x',
        b'{"a":' * 2000,
        b"{}\0",
    ],
)
def test_headers_that_safetensors_would_not_write_are_damage(text: bytes, tmp_path: Path) -> None:
    assert look(header_file(tmp_path / "sample.safetensors", text))[0].found == DAMAGED


def test_a_header_longer_than_the_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "sample.safetensors"
    for content in (b"", b"\1\2\3", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 3) + b"{}"):
        path.write_bytes(content)
        assert look(path)[0].found == DAMAGED


def test_files_that_are_not_there_are_said_to_be_missing(tmp_path: Path) -> None:
    good = tmp_path / "good.npy"
    np.save(good, np.ones(2))
    folder = tmp_path / "folder.pt"
    folder.mkdir()
    answers = look(tmp_path / "gone.pt", good, folder)
    assert [answer.found for answer in answers] == [NO_FILE, LAYOUT, NO_FILE]
    assert [answer.error for answer in answers] == [errno.ENOENT, 0, errno.EISDIR]
    assert isinstance(error_of(answers[0], "gone.pt"), FileNotFoundError)
    assert isinstance(error_of(answers[2], "folder.pt"), IsADirectoryError)


def test_names_promise_formats() -> None:
    known = {
        "a.pt": formats.PT,
        "b.PTH": formats.PT,
        "c.npy": formats.NPY,
        "d.safetensors": formats.SAFETENSORS,
    }
    assert {name: formats.format_of(name) for name in known} == known
    assert formats.format_of("e.bin") is None
    assert formats.format_of("pt") is None


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".safetensors"])
def test_damaged_headers_give_a_layout_inside_the_file_or_a_reason(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"good{suffix}"
    if suffix == ".pt":
        torch.save({"x": torch.arange(4.0), "y": (3, torch.ones(2, 2).bfloat16())}, path)
    elif suffix == ".npy":
        np.save(path, np.ones((3, 4), np.float32))
    else:
        write_safetensors(path, {"x": torch.arange(4.0), "y": torch.ones(3, dtype=torch.uint8)})
    rng = random.Random(0)
    paths = []
    for i, content in enumerate(damaged_copies(path.read_bytes(), rng, 150)):
        paths.append(tmp_path / f"{i}{suffix}")
        paths[-1].write_bytes(content)
    answers = look(*paths)
    assert {answer.found for answer in answers} <= {LAYOUT, UNSUPPORTED, DAMAGED}
    assert len({answer.found for answer in answers}) > 1
    for mutated, answer in zip(paths, answers, strict=True):
        if answer.found == LAYOUT:
            sample_in(mutated, answer)
        else:
            assert isinstance(error_of(answer, str(mutated)), DataFileError)
