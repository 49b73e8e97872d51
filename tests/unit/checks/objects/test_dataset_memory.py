"""Memory that every worker copies is found before a worker starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from unstarve.checks.objects import dataset_memory
from unstarve.checks.objects.all_checks import check_loader
from unstarve.checks.objects.dataset_memory import pickled_size
from unstarve.checks.objects.subject import Subject
from unstarve.model import Finding

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # no worker starts here

MANY = 400_000


class Samples(Dataset[Any]):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Row:
    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"row {number}"


def paths() -> list[tuple[str, int]]:
    return [(f"/data/imagenet/train/n01440764/n01440764_{n:08}.JPEG", n % 10) for n in range(MANY)]


def found(dataset: Any, *, method: str = "fork", workers: int = 4) -> list[Finding]:
    context = method if workers else None
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=8, num_workers=workers, multiprocessing_context=context
    )
    return check_loader(Subject(loader, "train_loader", "train_set", "train.py", 12))


def test_a_large_list_of_python_objects() -> None:
    (one,) = found(Samples(paths()))
    assert (one.id, one.where) == ("copy-on-write", "train.py:12")
    assert one.message.startswith("train_set.samples is a list of 400,000 tuples (6")
    assert one.fix == "train_set = unstarve.share(train_set)"


def test_a_dataset_without_a_name_is_shared_in_place() -> None:
    loader: DataLoader[Any] = DataLoader(Samples(paths()), num_workers=2, multiprocessing_context="fork")
    (one,) = check_loader(Subject(loader, "loader", "loader.dataset"))
    assert one.fix == "unstarve.share(loader.dataset)"


def test_inside_other_datasets_it_has_their_path() -> None:
    (one,) = found(Subset(ConcatDataset([Samples([1]), Samples(paths())]), range(400)))
    assert "train_set.dataset.datasets[1].samples is a list of 400,000 tuples" in one.message


def test_a_large_dict_and_what_it_holds_are_one_finding() -> None:
    table = {f"sample-{n}": {"file": f"{n:040}.png", "boxes": [n + 0.5, n + 1.5]} for n in range(MANY // 2)}
    (one,) = found(Samples(table))
    assert "train_set.samples is a dict of 200,000 dicts" in one.message


def test_objects_that_cannot_be_shared_become_columns() -> None:
    (one,) = found(Samples([Row(n) for n in range(MANY)]))
    assert "is a list of 400,000 Rows" in one.message
    assert "NumPy arrays" in one.fix


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros((MANY, 40)),
        torch.zeros(MANY, 40),
        [np.zeros(20_000) for _ in range(1500)],
        [n % 10 for n in range(20 * MANY)],
        [("/data/one.png", 1)] * (20 * MANY),
        paths()[:20_000],
    ],
    ids=["an array", "a tensor", "arrays in a list", "few numbers", "one object", "a short list"],
)
def test_memory_that_stays_shared_is_healthy(samples: Any) -> None:
    assert found(Samples(samples)) == []


def test_without_forked_workers_nothing_is_copied_on_write() -> None:
    assert found(Samples(paths()), workers=0) == []
    assert [one.id for one in found(Samples(paths()[:100_000]), method="spawn")] == []


def test_a_large_dataset_that_is_pickled_for_every_worker() -> None:
    (one,) = found(Samples([f"{n:0200}" for n in range(300_000)]), method="spawn")
    assert one.id == "large-pickled-dataset"
    assert "mostly train_set.samples; spawn sends it to each of 4 workers" in one.message
    assert one.fix == "train_set = unstarve.share(train_set)"


def test_a_large_array_is_better_sent_as_a_tensor() -> None:
    (one,) = found(Samples(np.zeros(10_000_000)), method="forkserver")
    assert one.message.startswith(
        "train_set is 80 MB when pickled, mostly train_set.samples; forkserver sends"
    )
    assert "320 MB in all" in one.message
    assert one.fix.startswith("train_set.samples = torch.from_numpy(train_set.samples)")
    assert found(Samples(torch.zeros(10_000_000)), method="forkserver") == []


def test_counting_the_bytes_leaves_tensors_where_they_are() -> None:
    values = torch.zeros(1000)
    counted = pickled_size(Samples(values))
    assert counted is not None
    assert counted.whole
    assert counted.bytes < 1000
    assert not values.is_shared()


def test_pickling_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_memory, "_LONGEST_S", -1.0)
    counted = pickled_size(Samples(["text"] * 1000))
    assert counted is not None
    assert not counted.whole


def test_what_cannot_be_pickled_has_no_size() -> None:
    assert pickled_size(Samples(lambda: None)) is None
