"""Files of a dataset: where they are, and whether a sample is what one of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from unstarve import share
from unstarve.collect.dataset_files import file_facts


class Files(Dataset[Any]):
    def __init__(self, paths: list[Any], **more: Any) -> None:
        self.paths = paths
        self.labels = [0] * len(paths)
        self.__dict__.update(more)

    def __len__(self) -> int:
        return len(self.paths)


class Loaded(Files):
    def __getitem__(self, index: int) -> Any:
        """A sample is a file."""
        return torch.load(self.paths[index], weights_only=True)


class Labelled(Files):
    def __getitem__(self, i: int) -> Any:
        path = self.paths[i]
        tensor = torch.load(str(path))
        return tensor, self.labels[i]


class Arrays(Files):
    def __getitem__(self, index: int) -> Any:
        array = np.load(self.paths[index])
        return torch.from_numpy(array)


class Halved(Files):
    def __getitem__(self, index: int) -> Any:
        return torch.load(self.paths[index]) / 2


class Checked(Files):
    def __getitem__(self, index: int) -> Any:
        if index > 10:
            raise IndexError(index)
        return torch.load(self.paths[index])


class Elsewhere(Files):
    def __getitem__(self, index: int) -> Any:
        return torch.load(self.labels[index])


class Photos(Files):
    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        if index:
            image = image.rotate(90)
        return image


def facts(dataset: Any) -> dict[str, Any]:
    return file_facts(dataset, dataset)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.pt" for number in range(3)]
    for path in found:
        path.write_bytes(b"12345")
    return found


def test_a_sample_that_is_a_files_content_is_recognized(tmp_path: Path, paths: list[Path]) -> None:
    assert facts(Loaded(paths)) == {
        "root": str(tmp_path), "suffix": ".pt", "file_bytes": 5, "files": "paths", "loads": "torch.load",
        "packs_as": f"{tmp_path}/*.pt",
    }  # fmt: skip


def test_a_shared_list_of_files_is_a_list_of_files(paths: list[Path]) -> None:
    assert facts(share(Loaded(paths), min_bytes=0)) == facts(Loaded(paths))


def test_labels_are_named_and_cannot_be_packed(paths: list[Path]) -> None:
    found = facts(Labelled(paths))
    assert (found["files"], found["labels"]) == ("paths", "labels")
    assert "packs_as" not in found


def test_arrays_are_files_of_another_kind() -> None:
    assert facts(Arrays(["a/1.npy"]))["loads"] == "numpy.load"
    assert "loads" not in facts(Arrays(["a/1.npz"]))


@pytest.mark.parametrize("kind", [Halved, Checked, Elsewhere])
def test_a_sample_that_is_more_than_its_file_is_not_replaced(kind: Any, paths: list[Path]) -> None:
    found = facts(kind(paths))
    assert found["suffix"] == ".pt"
    assert not {"files", "loads", "packs_as"} & set(found)


def test_a_subset_is_not_its_file_list(paths: list[Path]) -> None:
    own = Loaded(paths)
    found = file_facts(Subset(own, [0]), own)
    assert "root" in found
    assert "files" not in found


def test_files_are_packed_only_if_the_folder_holds_just_these_in_this_order(paths: list[Path]) -> None:
    assert "packs_as" not in facts(Loaded(paths[::-1]))
    assert "packs_as" not in facts(Loaded(paths[:2]))
    (paths[0].parent / "deeper").mkdir()
    assert "packs_as" not in facts(Loaded([*paths, paths[0].parent / "deeper" / "9.pt"]))


def test_pairs_of_path_and_label_have_a_folder(tmp_path: Path, paths: list[Path]) -> None:
    found = facts(Files([(str(path), 0) for path in paths]))
    assert found["root"] == str(tmp_path)
    assert found["suffix"] == ".pt"


def test_what_is_opened_as_an_image_is_named(paths: list[Path]) -> None:
    assert facts(Photos(paths))["opened"] == "self.paths[index]"


def test_texts_that_are_no_paths_are_no_files() -> None:
    assert facts(Files(["a cat", "a dog"])) == {}
    assert facts(Loaded(["gone/1.pt"])) == {"suffix": ".pt", "files": "paths", "loads": "torch.load"}
