"""A file that is damaged, changed or closed to us is named, and costs nothing of the others."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from same_batches import same
from tensor_files import damaged_copies, save_numbered, write_safetensors
from unstarve import TensorFileDataset
from unstarve.errors import DataFileError

pytestmark = pytest.mark.usefixtures("readers")


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "vanished":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": whole[:-300], "garbage": b"x" * len(whole)}[how])


@pytest.mark.parametrize("known", [False, True], ids=["at first sight", "after it was read"])
@pytest.mark.parametrize("how", ["vanished", "empty", "cut", "garbage"])
@pytest.mark.parametrize("suffix", [".pt", ".npy", ".safetensors"])
def test_a_bad_file_is_named_and_costs_its_own_batch_only(
    suffix: str, how: str, known: bool, tmp_path: Path
) -> None:
    for i in range(6):
        path = tmp_path / f"{i}{suffix}"
        if suffix == ".pt":
            torch.save(torch.full((100,), i), path)
        elif suffix == ".npy":
            np.save(path, np.full(100, i))
        else:
            write_safetensors(path, {"x": torch.full((100,), i)})
    dataset = TensorFileDataset(tmp_path)
    if known:
        dataset.read_batch(range(6))
    damage(tmp_path / f"3{suffix}", how)
    batches = iter(DataLoader(dataset, batch_size=2))
    next(batches)
    with pytest.raises(FileNotFoundError if how == "vanished" else DataFileError) as caught:
        next(batches)
    assert f"3{suffix}" in str(caught.value)
    assert same(next(batches), dataset.read_batch([4, 5]))
    with pytest.raises(type(caught.value)):
        dataset[3]


def test_a_file_that_is_written_anew_is_looked_into_again(tmp_path: Path) -> None:
    paths = save_numbered(tmp_path, 3)
    dataset = TensorFileDataset(paths)
    assert dataset.read_batch([0, 1, 2]).shape == (3, 4, 5)
    torch.save({"moved": 1, "x": torch.ones(4, 5)}, paths[1])
    torch.save((torch.zeros(999), torch.full((4, 5), 7.0)), paths[2])
    assert same(dataset[1]["x"], torch.ones(4, 5))
    assert same(dataset[2][1], torch.full((4, 5), 7.0))
    torch.save(torch.full((4, 5), 8.0), paths[1])
    torch.save(torch.full((4, 5), 9.0), paths[2])
    assert dataset.read_batch([0, 1, 2])[:, 0, 0].tolist() == [0, 8, 9]


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".safetensors"])
def test_a_damaged_header_never_crashes(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"000{suffix}"
    if suffix == ".pt":
        torch.save({"x": torch.arange(4.0), "y": (3, torch.ones(2, 2).bfloat16())}, path)
    elif suffix == ".npy":
        np.save(path, np.ones((3, 4), np.float32))
    else:
        write_safetensors(path, {"x": torch.arange(4.0), "y": torch.ones(3, dtype=torch.uint8)})
    for i, data in enumerate(damaged_copies(path.read_bytes(), random.Random(1), 150), start=1):
        (tmp_path / f"{i:03}{suffix}").write_bytes(data)
    dataset = TensorFileDataset(tmp_path)
    read = 0
    for i in range(len(dataset)):
        try:
            dataset[i]
            read += 1
        except (DataFileError, OSError) as error:
            assert f"{i:03}{suffix}" in str(error)  # noqa: PT017  # some of the files may be read
    assert 0 < read < len(dataset)


def test_files_one_may_not_read_are_named(tmp_path: Path) -> None:
    paths = save_numbered(tmp_path, 2)
    Path(paths[1]).chmod(0)
    if os.access(paths[1], os.R_OK):
        pytest.skip("root may read everything")
    with pytest.raises(PermissionError) as caught:
        TensorFileDataset(paths).read_batch([0, 1])
    assert caught.value.filename == paths[1]


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


IRREGULAR = {"a FIFO": make_fifo, "a socket": make_socket, "a character device": make_device}


@pytest.mark.filterwarnings("ignore:without the native part")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("known", [False, True], ids=["at first sight", "after it was read"])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_is_no_regular_file_is_named_and_not_waited_for(
    kind: str, direct: bool, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    paths = [Path(f"{i}{suffix}") for i, suffix in enumerate((".npy", ".npy", ".pt", ".safetensors"))]
    for path in paths[:2]:
        np.save(path, np.ones(4))
    if not known:
        paths[1].unlink()
        IRREGULAR[kind](paths[1])
    for path in paths[2:]:
        IRREGULAR[kind](path)
    dataset = TensorFileDataset(paths, direct=direct)
    if known:
        assert len(dataset.read_batch([0, 1])) == 2
        paths[1].unlink()
        IRREGULAR[kind](paths[1])
    for at in (1, 2, 3):
        with pytest.raises(DataFileError, match=f"{paths[at]} is {kind}, not a regular file"):
            dataset.read_batch([0, at])
        with pytest.raises(DataFileError, match=f"{paths[at]} is {kind}, not a regular file"):
            dataset[at]
    assert len(dataset.read_batch([0])) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_raw_file_is_a_regular_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "raw.bin")
    dataset = TensorFileDataset([tmp_path / "raw.bin"], dtype=torch.uint8, shape=(4,), direct="auto")
    with pytest.raises(DataFileError, match=r"raw\.bin is a FIFO, not a regular file"):
        dataset[0]
    with pytest.raises(DataFileError, match=r"raw\.bin is a FIFO, not a regular file"):
        TensorFileDataset([tmp_path / "raw.bin"], dtype=torch.uint8, shape=(4,), direct=True)[0]
