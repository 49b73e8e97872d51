"""The kind of a file, by its first bytes."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from unstarve.record.file_kinds import kind_of, kinds_of


def tar_bytes() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return out.getvalue()


def saved(save: object, value: object) -> bytes:
    out = io.BytesIO()
    save(value, out)  # type: ignore[operator]  # torch.save, or np.save the other way round
    return out.getvalue()


def zip_bytes(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(name, b"")
    return out.getvalue()


@pytest.mark.parametrize(
    ("head", "ending", "kind"),
    [
        (tar_bytes(), "", "tar"),
        (b"PAR1\x15\x04", "", "Parquet"),
        (b"ARROW1\0\0", "", "Arrow"),
        (b"\x89HDF\r\n\x1a\n", "", "HDF5"),
        (b"\0" * 16 + struct.pack("<I", 0xBEEFC0DE), ".mdb", "LMDB"),
        (b"\0\0\0\x20ftypisom", ".mp4", "video"),
        (b"RIFF\0\0\0\0AVI LIST", "", "video"),
        (saved(torch.save, torch.zeros(2)), "", ".pt"),
        (saved(lambda value, out: np.save(out, value), np.zeros(2)), "", "npy"),
        (zip_bytes("x.npy"), ".npz", "npz"),
        (zip_bytes("x.txt"), ".zip", "zip"),
        (b"\xff\xd8\xff\xe0", "", "JPEG"),
        (b"\x89PNG\r\n\x1a\n", "", "PNG"),
        (struct.pack("<Q", 40) + b'{"a":', "", "safetensors"),
        (b'{"text": 1}\n', ".jsonl", "text"),
        (b"", "", ""),
        (b"anything at all", ".bin", ""),
    ],
)
def test_the_first_bytes_tell_the_kind(head: bytes, ending: str, kind: str) -> None:
    assert kind_of(head[:512], ending) == kind


def test_records_as_tensorboard_writes_them_are_tfrecords() -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.record_writer")
    out = io.BytesIO()
    writer.RecordWriter(out).write(b"12345")
    assert kind_of(out.getvalue()) == "TFRecord"


def test_files_that_begin_with_nothing_known_are_told_by_their_use_and_place(tmp_path: Path) -> None:
    for name in ("tokens.bin", "a.zarr/0.0", "images/1.jpg", "images/2.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff\xd8\xff" if name.endswith("jpg") else b"\1\2\3\4")
    images = f"{tmp_path}/images/"
    paths = [
        f"{tmp_path}/tokens.bin",
        f"{tmp_path}/a.zarr/0.0",
        f"{images}1.jpg",
        f"{images}gone.jpg",
        images,
    ]
    kinds = kinds_of({path: path.endswith("tokens.bin") for path in [*paths, ""]})
    assert [kinds[path] for path in paths[:3]] == ["memmap", "Zarr", "JPEG"]
    assert kinds[images] == "JPEG"
    assert kinds[""] == ""
