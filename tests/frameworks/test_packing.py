"""`unstarve pack` reads the formats of training data, and `PackedDataset` serves the same samples."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.integration.conftest import Project

import unstarve

pytestmark = pytest.mark.needs("h5py")


def packed(frameworks: Project, *sources: Any) -> unstarve.PackedDataset:
    done = frameworks.unstarve("pack", "--force", "--restart", *sources, "out.packed")
    assert done.returncode == 0, done.stderr
    return unstarve.PackedDataset(frameworks.folder / "out.packed")


def test_rows_of_an_hdf5_file(frameworks: Project) -> None:
    import h5py

    images = np.arange(40 * 6, dtype=np.float32).reshape(40, 2, 3)
    path = frameworks.folder / "train.h5"
    with h5py.File(path, "w") as file:
        file["images"] = images
        file["more/labels"] = np.arange(40)
        file["classes"] = 3  # of the file, not of a sample
    data = packed(frameworks, path)
    assert len(data) == 40
    assert np.array_equal(data[7]["images"], images[7])
    assert [data[number]["more/labels"] for number in (0, 39)] == [0, 39]


def test_arrays_of_different_lengths_are_no_samples(frameworks: Project) -> None:
    import h5py

    with h5py.File(frameworks.folder / "odd.h5", "w") as file:
        file["images"], file["offsets"] = np.zeros((8, 2)), np.zeros(9)
    done = frameworks.unstarve("pack", "odd.h5", "odd.packed")
    assert done.returncode == 2
    assert "offsets: 9, images: 8" in " ".join(done.stderr.split())


def write_shards(folder: Path, count: int, samples: int) -> list[Path]:
    """Shards as webdataset's writer makes them: 00000.txt, 00000.cls, 00000.npy, …"""
    paths = []
    for shard in range(count):
        paths.append(folder / f"train-{shard:06}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for number in range(shard * samples, (shard + 1) * samples):
                array = io.BytesIO()
                np.save(array, np.full(4, number, np.float32))
                members = {"txt": b"text %d" % number, "cls": b"%d" % (number % 3), "npy": array.getvalue()}
                for suffix, data in members.items():
                    member = tarfile.TarInfo(f"{number:05}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return paths


@pytest.mark.needs("webdataset")
def test_samples_of_webdatasets_shards(frameworks: Project) -> None:
    import webdataset

    shards = write_shards(frameworks.folder, 3, 20)
    data = packed(frameworks, frameworks.folder / "train-*.tar")
    theirs = list(webdataset.WebDataset([str(path) for path in shards], shardshuffle=False).decode())
    assert len(data) == len(theirs) == 60
    for own, other in zip((data[number] for number in range(60)), theirs, strict=True):
        assert own["__key__"] == other["__key__"]
        assert (own["txt"], own["cls"]) == (other["txt"], other["cls"])
        assert np.array_equal(own["npy"], other["npy"])


def test_a_tar_that_is_cut_off_is_refused(frameworks: Project) -> None:
    (shard,) = write_shards(frameworks.folder, 1, 20)
    whole = shard.read_bytes()
    for name, data in {"cut.tar": whole[: 9 * 512 + 300], "dirt.tar": whole[:4608] + b"?" * 9999}.items():
        (frameworks.folder / name).write_bytes(data)
        done = frameworks.unstarve("pack", name, "no.packed")
        assert done.returncode == 2
        assert "cannot be read as a tar file" in " ".join(done.stderr.split())


def test_a_compressed_tar_is_refused_with_a_way_out(frameworks: Project) -> None:
    (frameworks.folder / "train.tar.gz").write_bytes(b"\x1f\x8b")
    done = frameworks.unstarve("pack", "train.tar.gz", "no.packed")
    assert done.returncode == 2
    assert "unpack it first" in " ".join(done.stderr.split())


@pytest.mark.needs("datasets")
@pytest.mark.parametrize("form", ["folder", "parquet"])
def test_rows_of_a_hugging_face_dataset(frameworks: Project, form: str) -> None:
    import datasets

    rows = {"ids": [[n, n + 1, n + 2] for n in range(40)], "label": [n % 3 for n in range(40)]}
    dataset = datasets.Dataset.from_dict(rows | {"text": [f"text {n}" for n in range(40)]})
    path = frameworks.folder / ("hub" if form == "folder" else "hub.parquet")
    if form == "folder":
        dataset.save_to_disk(path)
    else:
        dataset.to_parquet(path)
    data = packed(frameworks, path)
    assert len(data) == 40
    assert torch.equal(data[5]["ids"], torch.tensor([5, 6, 7]))
    assert (int(data[5]["label"]), data[5]["text"]) == (2, "text 5")
    batch = next(iter(unstarve.DataLoader(data, batch_size=8)))
    assert batch["ids"].shape == (8, 3)


@pytest.mark.needs("datasets")
def test_a_damaged_parquet_file_is_refused(frameworks: Project) -> None:
    (frameworks.folder / "damaged.parquet").write_bytes(b"PAR1")
    done = frameworks.unstarve("pack", "damaged.parquet", "no.packed")
    assert done.returncode == 2
    assert "cannot be read as a Hugging Face dataset" in " ".join(done.stderr.split())


def test_image_folders_with_their_labels(frameworks: Project) -> None:
    from PIL import Image

    for name in ("cat", "dog"):
        (frameworks.folder / "images" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (40, 30), (number, 90, 40)).save(
                frameworks.folder / "images" / name / f"{number}.png"
            )
    data = packed(frameworks, "--labels", frameworks.folder / "images")
    content, label = data[4]
    assert Image.open(io.BytesIO(bytes(content))).size == (40, 30)
    assert label == 1
    assert data.about["classes"] == ["cat", "dog"]
    assert json.dumps(data.about)
