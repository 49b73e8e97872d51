"""What `unstarve.share` finds in a dataset, what it changes and what it leaves alone."""

from __future__ import annotations

import types
from collections import UserList, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from shared_sources import Listed
from torchvision_here import torchvision_here
from unstarve import UsageError, share
from unstarve.collect.dataset_weight import largest_attribute
from unstarve.fixes.memory.shared.shared_dict import SharedDict
from unstarve.fixes.memory.shared.shared_list import SharedList
from unstarve.fixes.memory.store.cache_key import key_of

COUNT = 30_000
LONG = [f"/data/{i:020d}" for i in range(COUNT)]


def is_shared(value: Any) -> bool:
    return isinstance(value, SharedList | SharedDict)


def test_the_dataset_itself_is_returned_and_reads_as_before() -> None:
    dataset, plain = Listed(COUNT), Listed(COUNT)
    assert share(dataset) is dataset
    assert all(map(is_shared, (dataset.paths, dataset.samples, dataset.numbers)))
    assert [dataset[i] for i in range(0, COUNT, 97)] == [plain[i] for i in range(0, COUNT, 97)]
    assert dataset.paths == plain.paths
    assert dataset.samples == plain.samples
    assert dataset.numbers == plain.numbers


def test_attributes_that_were_one_list_stay_one_list() -> None:
    dataset = share(Listed(COUNT))
    assert dataset.imgs is dataset.samples


def test_texts_in_several_lists_are_stored_once() -> None:
    dataset = share(Listed(COUNT))
    texts_bytes = sum(map(len, dataset.paths))
    assert texts_bytes < dataset.paths.shared_bytes < 2 * texts_bytes  # type: ignore[attr-defined] # shared


def test_small_containers_stay_plain() -> None:
    dataset = share(Listed(COUNT))
    assert type(dataset.few) is list
    assert type(share(Listed(100)).paths) is list
    assert is_shared(share(Listed(100), min_bytes=0).paths)


def test_skipped_attributes_stay_plain() -> None:
    dataset = share(Listed(COUNT), skip=["numbers"])
    assert type(dataset.numbers) is dict
    assert is_shared(dataset.paths)


def test_a_second_call_finds_nothing_more() -> None:
    dataset = share(Listed(COUNT))
    paths = dataset.paths
    assert share(dataset).paths is paths


class Bag(Dataset[Any]):
    """Any attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@pytest.mark.parametrize(
    "value",
    [
        [torch.zeros(1)] * COUNT,
        [object()] * COUNT,
        [(path, object()) for path in LONG],
        np.arange(COUNT),
        torch.arange(COUNT),
        set(LONG),
        UserWarning(LONG),
        None,
        7,
    ],
)
def test_what_cannot_be_shared_stays_the_same_object(value: Any) -> None:
    dataset = share(Bag(value=value, paths=list(LONG)))
    assert vars(dataset)["value"] is value
    assert is_shared(vars(dataset)["paths"])
    assert vars(dataset)["paths"] == LONG


def test_wrapped_datasets_are_shared_too() -> None:
    inner = Listed(COUNT)
    subset = Subset(ConcatDataset([inner, Subset(inner, range(9))]), list(range(COUNT))[::-1])
    first = subset[0]
    assert share(subset) is subset
    assert is_shared(subset.indices)
    assert is_shared(inner.paths)
    assert subset[0] == first
    assert len(subset) == COUNT


def test_lists_within_a_dict_are_read_in_place() -> None:
    splits = {
        "train": list(LONG),
        "test": LONG[:10],
        "boxes": defaultdict(list, {path: [1] for path in LONG}),
    }
    dataset = share(Bag(splits=splits))
    found = vars(dataset)["splits"]
    assert found == splits
    assert type(found) is dict
    assert found is not splits
    assert is_shared(found["train"])
    assert type(found["test"]) is list
    assert is_shared(found["boxes"])
    assert type(splits["train"]) is list


def test_a_list_within_a_dict_stays_the_list_of_another_attribute() -> None:
    splits = {"train": list(LONG)}
    dataset = share(Bag(splits=splits, paths=splits["train"]))
    assert is_shared(vars(dataset)["paths"])
    assert vars(dataset)["paths"] is vars(dataset)["splits"]["train"]


def test_the_index_of_a_coco_file_reads_as_before() -> None:
    segments: list[Any] = [[[0.5, 1.0, 2.5, 3.0]], {"counts": [1, 2], "size": [3, 4]}]
    records = [
        {"id": i, "image_id": i // 3, "bbox": [i, 0.5, 1, 2.5], "segmentation": segments[i % 10 == 0]}
        for i in range(COUNT)
    ]
    by_image = defaultdict(list)
    for record in records:
        by_image[record["image_id"]].append(record)
    index = types.SimpleNamespace(
        dataset={"info": {"year": 2017}, "annotations": records},
        anns={record["id"]: record for record in records},
        imgToAnns=by_image,
    )
    plain = dict(vars(index))
    share(Bag(coco=index))
    assert all(map(is_shared, (index.dataset["annotations"], index.anns, index.imgToAnns)))
    assert vars(index) == plain
    assert index.imgToAnns[-1] == []


def test_lists_on_plain_objects_are_shared_but_not_on_callables() -> None:
    class Tokenizer:
        def __init__(self) -> None:
            self.vocabulary = {word: i for i, word in enumerate(LONG)}

        def __call__(self, text: str) -> int:
            return self.vocabulary[text]

    index = types.SimpleNamespace(images={i: {"id": i, "file": path} for i, path in enumerate(LONG)})
    tokenizer, words = Tokenizer(), UserList(LONG)
    share(Bag(index=index, tokenizer=tokenizer, words=words))
    assert is_shared(index.images)
    assert index.images[3] == {"id": 3, "file": LONG[3]}
    assert type(tokenizer.vocabulary) is dict
    assert is_shared(words.data)
    assert words[-1] == LONG[-1]


def test_slots_properties_and_frozen_dataclasses() -> None:
    class Slotted(Dataset[Any]):
        __slots__ = ("_paths", "unset")

        def __init__(self) -> None:
            self._paths = list(LONG)

        @property
        def paths(self) -> list[str]:
            return self._paths

    @dataclass(frozen=True)
    class Frozen:
        paths: list[str]

    @dataclass(frozen=True, slots=True)
    class FrozenSlots:
        paths: list[str]

    for dataset in (Slotted(), Frozen(list(LONG)), FrozenSlots(list(LONG))):
        assert is_shared(share(dataset).paths)
        assert dataset.paths == LONG


def test_objects_that_refer_to_each_other_end_the_walk() -> None:
    one, other = Bag(paths=list(LONG)), Bag()
    vars(one)["other"], vars(other)["other"] = other, [one]
    share(one)
    assert is_shared(vars(one)["paths"])


def test_nothing_changes_if_the_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    dataset = Listed(COUNT)
    monkeypatch.setattr("unstarve.fixes.memory.shared.encoding.SharedRegion", full)
    with pytest.raises(OSError, match="No space left"):
        share(dataset)
    assert type(dataset.paths) is list
    assert type(dataset.samples) is list


def test_a_loader_is_refused() -> None:
    with pytest.raises(UsageError, match="share the dataset before you make the loader"):
        share(DataLoader(Listed(3)))


def test_an_image_folder_is_shared(tmp_path: Path) -> None:
    folder = torchvision_here().datasets.ImageFolder
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").touch()
    dataset, plain = folder(tmp_path), folder(tmp_path)
    share(dataset, min_bytes=0)
    assert is_shared(dataset.samples)
    assert dataset.imgs is dataset.samples
    assert dataset.samples == plain.samples
    assert dataset.targets == plain.targets
    assert dataset.class_to_idx == plain.class_to_idx
    assert dataset.classes == plain.classes


def test_the_rest_of_unstarve_knows_shared_lists() -> None:
    plain, dataset = Listed(COUNT), share(Listed(COUNT))
    assert largest_attribute(plain) is not None
    assert largest_attribute(dataset) is None
    assert key_of(dataset, COUNT, []) == key_of(plain, COUNT, [])
