"""Files with tensors as a dataset: each claim holds for the native part and for the libraries."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate

from same_batches import same
from tensor_files import LEFT_TO_TORCH, PLAIN, save_numbered, write_safetensors
from unstarve import TensorFileDataset
from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.samples.built_batch import Batched

pytestmark = pytest.mark.usefixtures("readers")


class Loaded(Dataset[Any]):
    """What people write by hand."""

    def __init__(self, paths: list[str], load: Callable[[str], Any] = torch.load) -> None:
        self.paths = paths
        self.load = load

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.load(self.paths[index])


@pytest.mark.parametrize("name", [*PLAIN, *LEFT_TO_TORCH])
def test_a_sample_is_what_torch_load_gives(name: str, tmp_path: Path) -> None:
    value = PLAIN[name] if name in PLAIN else LEFT_TO_TORCH[name]
    torch.save(value, tmp_path / "0.pt")
    dataset = TensorFileDataset(tmp_path)
    assert len(dataset) == 1
    assert same(dataset[0], torch.load(tmp_path / "0.pt", weights_only=True))


@pytest.mark.filterwarnings("ignore:without the native part")
@pytest.mark.parametrize(
    ("name", "direct"),
    [*((name, False) for name in (*PLAIN, "transposed", "string")), ("nested", True), ("expanded", True)],
)
def test_a_batch_is_what_default_collate_makes(name: str, direct: bool, tmp_path: Path) -> None:
    value = PLAIN[name] if name in PLAIN else LEFT_TO_TORCH[name]
    for i in range(3):
        torch.save(value, tmp_path / f"{i}.pt")
    dataset = TensorFileDataset(tmp_path, direct=direct)
    expected = default_collate([dataset[i] for i in (2, 0, 1)])
    assert same(dataset.read_batch([2, 0, 1]), expected)
    assert same(default_collate(dataset.__getitems__([2, 0, 1])), expected)
    assert same(list(dataset.__getitems__([2, 0, 1])), [dataset[i] for i in (2, 0, 1)])


def test_numbers_in_files_become_tensors_of_numbers(tmp_path: Path) -> None:
    for i in range(3):
        torch.save({"x": torch.full((2,), i), "y": i - 1, "z": i / 2, "w": i > 1}, tmp_path / f"{i}.pt")
    batch = TensorFileDataset(tmp_path).read_batch([0, 1, 2])
    assert same(batch["y"], torch.tensor([-1, 0, 1]))
    assert same(batch["z"], torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    assert same(batch["w"], torch.tensor([False, False, True]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_stock_loader_gives_the_same_batches(workers: int, drop_last: bool, tmp_path: Path) -> None:
    paths = save_numbered(tmp_path / "data", 11)
    ours, theirs = (
        list(
            DataLoader(
                dataset,
                batch_size=4,
                shuffle=True,
                drop_last=drop_last,
                num_workers=workers,
                generator=torch.Generator().manual_seed(1),
            )
        )
        for dataset in (TensorFileDataset(paths), Loaded(paths))
    )
    assert same(ours, theirs)


def test_spawned_workers_read_too(tmp_path: Path, readers: str) -> None:
    if readers == "fallback":
        pytest.skip("a spawned worker would choose for itself")
    paths = save_numbered(tmp_path / "data", 6)
    loader = DataLoader(
        TensorFileDataset(paths), batch_size=3, num_workers=1, multiprocessing_context="spawn"
    )
    assert same(torch.cat(list(loader))[:, 0, 0], torch.arange(6.0))


def test_what_workers_find_is_known_to_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str
) -> None:
    if readers == "fallback":
        pytest.skip("libraries remember nothing about a file")
    dataset = TensorFileDataset(save_numbered(tmp_path / "data", 6))
    loader = DataLoader(dataset, batch_size=3, num_workers=1, multiprocessing_context="fork")
    first = list(loader)
    monkeypatch.setattr("unstarve.fixes.datasets.files.layout_table.find_layouts", None)
    assert same(list(loader), first)
    assert same(dataset[5], torch.full((4, 5), 5.0))


def test_files_are_looked_into_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str
) -> None:
    if readers == "fallback":
        pytest.skip("libraries load whole files")
    paths = save_numbered(tmp_path, 24)
    dataset = TensorFileDataset(paths)
    monkeypatch.setattr("unstarve.fixes.datasets.files.layout_table.find_layouts", None)
    order = [17, 17, 3, 17, 23, 9, 9, 0]  # a file may come twice, and twice in a row
    for _ in range(2):
        assert dataset.read_batch(order)[:, 0, 0].tolist() == order
    torch.save(torch.full((4, 5), 99.0), paths[3])
    os.utime(paths[3], (0, 0))
    assert dataset.read_batch(order)[:, 0, 0].tolist() == [99 if at == 3 else at for at in order]


def test_what_was_found_beside_another_structure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str
) -> None:
    if readers == "fallback":
        pytest.skip("libraries remember nothing about a file")
    paths = save_numbered(tmp_path, 20)
    dataset = TensorFileDataset(paths)
    torch.save(torch.full((2, 10), 5.0), paths[15])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        dataset.read_batch([14, 15, 16])
    assert same(dataset[15], torch.full((2, 10), 5.0))
    monkeypatch.setattr("unstarve.fixes.datasets.files.layout_table.find_layouts", None)
    assert dataset.read_batch([14, 16])[:, 0, 0].tolist() == [14, 16]
    assert [sample.shape for sample in dataset[14:17]] == [(4, 5), (2, 10), (4, 5)]


def test_numpy_files_are_tensors(tmp_path: Path) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) + i for i in range(3)]
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    dataset = TensorFileDataset(tmp_path)
    assert same(dataset[1], torch.from_numpy(arrays[1]))
    assert same(dataset.read_batch([2, 0]), torch.from_numpy(np.stack([arrays[2], arrays[0]])))


@pytest.mark.parametrize("array", [np.ones((2, 3), ">f4"), np.asfortranarray(np.arange(6.0).reshape(2, 3))])
def test_arrays_in_other_orders_are_loaded_by_numpy(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", array)
    dataset = TensorFileDataset(tmp_path)
    expected = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    assert same(dataset[0], expected)
    assert same(dataset.read_batch([0, 0]), torch.stack([expected] * 2))


def test_safetensors_files_are_dicts(tmp_path: Path) -> None:
    for i in range(2):
        write_safetensors(tmp_path / f"{i}.safetensors", {"x": torch.ones(2, 3) * i, "y": torch.tensor(i)})
    dataset = TensorFileDataset(tmp_path)
    assert same(dataset[1], {"x": torch.ones(2, 3), "y": torch.tensor(1)})
    batch = dataset.read_batch([1, 0])
    assert same(batch["y"], torch.tensor([1, 0]))


def test_raw_files_are_the_bytes_of_a_tensor(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.bin").write_bytes(np.full((2, 2), i, np.int16).tobytes())
    dataset = TensorFileDataset(tmp_path, dtype=torch.int16, shape=(2, 2))
    assert same(dataset[2], torch.full((2, 2), 2, dtype=torch.int16))
    assert dataset.read_batch([2, 0]).shape == (2, 2, 2)
    (tmp_path / "1.bin").write_bytes(b"\0" * 9)
    with pytest.raises(DataFileError, match=r"1\.bin has 9 bytes, but the given dtype and shape need 8"):
        dataset.read_batch([0, 1])
    assert dataset.read_batch([0, 2]).shape == (2, 2, 2)


def test_files_of_several_formats_make_one_dataset(tmp_path: Path) -> None:
    torch.save(torch.ones(3), tmp_path / "a.pt")
    np.save(tmp_path / "b.npy", np.ones(3, np.float32))
    assert same(TensorFileDataset(tmp_path).read_batch([0, 1]), torch.ones(2, 3))


def test_paths_may_be_a_list_a_pattern_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = save_numbered(tmp_path / "b", 3)
    deeper = save_numbered(tmp_path / "b" / "c", 2)
    (tmp_path / "b" / "notes.txt").write_text("not a tensor")
    assert TensorFileDataset(tmp_path).paths == sorted(paths + deeper)
    assert TensorFileDataset(str(tmp_path / "b" / "*.pt")).paths == paths
    assert TensorFileDataset(str(tmp_path / "**" / "*.pt")).paths == sorted(paths + deeper)
    assert TensorFileDataset(paths[::-1]).paths == paths[::-1]
    assert TensorFileDataset(paths[1]).paths == [paths[1]]
    monkeypatch.chdir(tmp_path)
    relative = TensorFileDataset([Path("b/000.pt")])
    monkeypatch.chdir("/")
    assert same(relative[0], torch.zeros(4, 5))


@pytest.mark.parametrize("one", ["/a/b", "/a//b", "//a", "/a/./b", "/a/../b", "/a/..", "/a/", "b/./c"])
def test_paths_are_absolute(one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    some = ["/x/.hidden/a..b", one, "y/z..", "z"]
    for given in (some, some[:2], some[2:]):
        raw = TensorFileDataset(given, dtype=torch.uint8, shape=[1])
        assert raw.paths == [os.path.abspath(path) for path in given]  # noqa: PTH100  # what it must equal


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"paths": []}, UsageError),
        ({"paths": "{folder}/empty"}, UsageError),
        ({"paths": "{folder}/*.nothing"}, UsageError),
        ({"paths": "{folder}/missing"}, FileNotFoundError),
        ({"paths": ["{folder}/some.txt"]}, UsageError),
        ({"dtype": torch.uint8}, UsageError),
        ({"shape": (3,)}, UsageError),
        ({"dtype": torch.uint8, "shape": (-3,)}, UsageError),
        ({"dtype": torch.uint8, "shape": (10**18, 10**18)}, UsageError),
        ({"dtype": torch.uint8, "shape": (0, 10**18, 10**18)}, UsageError),
        ({"direct": "maybe"}, UsageError),
        ({"depth": 0}, UsageError),
        ({"threads": -1}, UsageError),
        ({"labels": [1]}, UsageError),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], error: type, tmp_path: Path) -> None:
    paths = save_numbered(tmp_path, 2)
    (tmp_path / "empty").mkdir()
    given = dict(arguments)
    if isinstance(given.get("paths"), str):
        given["paths"] = given["paths"].format(folder=tmp_path)
    elif given.get("paths"):
        given["paths"] = [path.format(folder=tmp_path) for path in given["paths"]]
    with pytest.raises(error):
        TensorFileDataset(**({"paths": paths} | given))


def test_indices_are_whatever_a_sampler_gives(tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path))
    assert dataset[-1][0, 0] == 9
    assert dataset[np.int64(3)][0, 0] == 3
    assert dataset[torch.tensor(4)][0, 0] == 4
    for indices in ([7, -1], np.array([7, 9]), torch.tensor([7, 9]), (np.int32(7), 9), range(7, 10, 2)):
        assert dataset.read_batch(indices)[:, 0, 0].tolist() == [7, 9]
    for bad in (10, -11):
        with pytest.raises(IndexError, match=f"index {bad} is out of range for 10 files"):
            dataset[bad]
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            dataset.read_batch([0, bad])
    with pytest.raises(TypeError):
        dataset[1.5]
    assert len(list(dataset)) == 10


def test_a_slice_is_a_dataset_of_those_files(tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path), labels=list(range(10)))
    part = dataset[2:9:3]
    assert isinstance(part, TensorFileDataset)
    assert [label for _, label in part] == [2, 5, 8]
    assert part.paths == dataset.paths[2:9:3]
    assert part[1:][0][1] == 5
    assert part.read_batch([-1])[1].tolist() == [8]
    assert len(dataset) == 10


def test_parts_and_sums_of_datasets_work(tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path))
    subset = Subset(dataset, [8, 3, 5])
    assert next(iter(DataLoader(subset, batch_size=3)))[:, 0, 0].tolist() == [8, 3, 5]
    both = ConcatDataset([dataset, subset])
    assert torch.cat(list(DataLoader(both, batch_size=4)))[:, 0, 0].tolist() == [*range(10), 8, 3, 5]


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2],
        [0.5, 1.5, 2.5],
        [True, False, True],
        ["a", "b", "c"],
        [(1, "x"), (2, "y"), (3, "z")],
        torch.tensor([5, 6, 7]),
        torch.eye(3),
    ],
)
def test_labels_come_with_the_samples(labels: Any, tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path, 3), labels=labels)
    assert same(dataset[1], (torch.full((4, 5), 1.0), labels[1]))
    expected = default_collate([dataset[i] for i in (2, 0)])
    assert same(dataset.read_batch([2, 0]), expected)
    assert same(next(iter(DataLoader(dataset, batch_size=2, sampler=[2, 0]))), expected)


def test_numpy_labels_are_a_tensor(tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path, 3), labels=np.array([3, 4, 5]))
    assert same(dataset.read_batch([2, 0])[1], torch.tensor([5, 3]))


def test_a_transform_sees_each_sample(tmp_path: Path) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path), transform=lambda x: x.sum() + 1, labels=range(10))
    assert not dataset.releases_gil
    assert same(dataset[2], (torch.tensor(41.0), 2))
    assert same(dataset.read_batch([1, 2]), [torch.tensor([21.0, 41.0]), torch.tensor([1, 2])])
    assert same(next(iter(DataLoader(dataset, batch_size=2)))[0], torch.tensor([1.0, 21.0]))


def test_mixed_shapes_fail_as_in_torch_and_can_be_had_one_by_one(tmp_path: Path) -> None:
    for i in range(4):
        torch.save(torch.ones(i + 1), tmp_path / f"{i}.pt")
    dataset = TensorFileDataset(tmp_path)
    with pytest.raises(RuntimeError, match="equal size"):
        dataset.read_batch([0, 1])
    with pytest.raises(RuntimeError, match="equal size"):
        next(iter(DataLoader(dataset, batch_size=2)))
    lengths = list(DataLoader(dataset, batch_size=2, collate_fn=lambda samples: [len(s) for s in samples]))
    assert lengths == [[1, 2], [3, 4]]
    assert same(dataset.read_batch([2, 2]), torch.ones(2, 3))


def test_mixed_types_are_promoted_as_in_torch(tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "0.pt")
    torch.save(torch.ones(2, dtype=torch.float64), tmp_path / "1.pt")
    assert same(TensorFileDataset(tmp_path).read_batch([0, 1]), torch.ones(2, 2, dtype=torch.float64))


def test_a_custom_collate_sees_samples(tmp_path: Path, readers: str) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path), labels=list("abcdefghij"))
    assert isinstance(dataset.__getitems__([1, 2]), Batched if readers == "native" else list)
    loader = DataLoader(dataset, batch_size=2, collate_fn=lambda samples: [label for _, label in samples])
    assert next(iter(loader)) == ["a", "b"]


def test_datasets_are_pickled_with_what_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str
) -> None:
    dataset = TensorFileDataset(save_numbered(tmp_path), labels=torch.arange(10))
    expected = dataset.read_batch(range(10))
    again = pickle.loads(pickle.dumps(dataset))
    if readers == "native":  # libraries know nothing about a file
        monkeypatch.setattr("unstarve.fixes.datasets.files.layout_table.find_layouts", None)
    assert same(again.read_batch(range(10)), expected)


def test_empty_tensors_and_single_values_make_batches(tmp_path: Path) -> None:
    for i in range(2):
        torch.save((torch.tensor(float(i)), torch.empty(0, 3)), tmp_path / f"{i}.pt")
    batch = TensorFileDataset(tmp_path).read_batch([0, 1])
    assert same(batch, [torch.tensor([0.0, 1.0]), torch.empty(2, 0, 3)])


def test_many_threads_may_share_a_dataset(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    dataset = TensorFileDataset(save_numbered(tmp_path, 40))
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(dataset.read_batch, [[i, i + 1] for i in range(0, 40, 2)] * 3))
    assert torch.cat(batches)[:, 0, 0].tolist() == [*range(40)] * 3
