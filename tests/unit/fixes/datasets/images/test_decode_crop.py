"""DecodeCrop: one transform in the place of five, in people's own datasets."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import unstarve
from image_folders import break_image, make_folder
from torchvision_here import torchvision_here
from unstarve.errors import ImageError, UsageError


class Own(Dataset[Any]):
    """A dataset as people write them, with a batched way beside."""

    def __init__(self, paths: list[str], transform: unstarve.DecodeCrop) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(self.paths[index])


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return sorted(map(str, make_folder(tmp_path).rglob("*.jpg")))


def drawn(call: Any, *given: Any) -> torch.Tensor:
    torch.manual_seed(4)
    made: torch.Tensor = call(*given)
    return made


def test_paths_and_bytes_give_the_same_tensor(paths: list[str]) -> None:
    transform = unstarve.DecodeCrop(24)
    expected = drawn(transform, paths[0])
    data = Path(paths[0]).read_bytes()
    for given in (Path(paths[0]), data, bytearray(data), memoryview(data)):
        assert torch.equal(drawn(transform, given), expected)
    assert (tuple(expected.shape), expected.dtype) == ((3, 24, 24), torch.float32)


def test_a_batch_draws_as_one_after_another(paths: list[str]) -> None:
    transform = unstarve.DecodeCrop((20, 30), mean=(0.5,) * 3, std=(0.2,) * 3)
    one_by_one = drawn(lambda: torch.stack([transform(path) for path in paths]))
    assert torch.equal(drawn(transform.batch, paths), one_by_one)


def test_it_replaces_torchvisions_transforms_in_its_own_dataset(tmp_path: Path) -> None:
    vision = torchvision_here()
    root, steps = make_folder(tmp_path), vision.transforms
    theirs = vision.datasets.ImageFolder(
        root, steps.Compose([steps.RandomResizedCrop(24), steps.RandomHorizontalFlip(), steps.ToTensor()])
    )
    ours = vision.datasets.ImageFolder(root, unstarve.DecodeCrop(24), loader=str)
    made = []
    for dataset in (theirs, ours):
        torch.manual_seed(4)
        made.append(torch.cat([images for images, _ in DataLoader(dataset, batch_size=4, num_workers=2)]))
    assert (made[0] - made[1]).abs().mean() < 1 / 255


def test_batches_from_workers_are_plain_and_stay_as_they_were_when_kept(paths: list[str]) -> None:
    size = 200  # batches that are large enough to be lent
    transform = unstarve.DecodeCrop(size, "center", resize=size)
    expected = [transform(path) for path in paths] * 4
    loader = DataLoader(Own(paths * 4, transform), batch_size=3, num_workers=2)
    assert torch.equal(torch.cat([batch.clone() for batch in loader]), torch.stack(expected))
    kept = list(loader)
    assert torch.equal(torch.cat(kept), torch.stack(expected))
    assert {type(batch) for batch in kept} == {torch.Tensor}
    assert all(batch.is_shared() and batch.is_contiguous() for batch in kept)


def kinds(samples: list[torch.Tensor]) -> list[str]:
    return [type(sample + 1).__name__ for sample in samples]


def test_samples_from_workers_are_plain_tensors_to_everybody_else(paths: list[str]) -> None:
    transform = unstarve.DecodeCrop(24, "center")
    expected = [transform(path) for path in paths]
    dataset = Own(paths, transform)
    for options in ({"batch_size": None}, {"batch_size": 1, "collate_fn": lambda samples: samples[0]}):
        got: list[Any] = list(DataLoader(dataset, num_workers=1, **options))
        assert {type(sample) for sample in got} == {torch.Tensor}
        assert torch.equal(torch.stack(got), torch.stack(expected))
    (batch,) = DataLoader(dataset, batch_size=12, num_workers=1, collate_fn=kinds)
    assert batch == ["Tensor"] * 12


def test_images_that_do_not_fit_together_are_refused_as_torch_refuses_them(paths: list[str]) -> None:
    class Uneven(Own):
        def __getitem__(self, index: int) -> torch.Tensor:
            return unstarve.DecodeCrop(200 + index)(self.paths[index])

    loader = DataLoader(Uneven(paths, unstarve.DecodeCrop()), batch_size=2, num_workers=1)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(iter(loader))


def test_it_can_be_pickled_and_compared_by_what_it_prints(paths: list[str]) -> None:
    transform = unstarve.DecodeCrop(24, "center", memory_format=torch.channels_last)
    copied = pickle.loads(pickle.dumps(transform))
    assert repr(copied) == repr(transform)
    assert torch.equal(copied(paths[0]), transform(paths[0]))
    assert len(list(DataLoader(Own(paths, copied), batch_size=4))) == 3


def test_errors_name_what_they_can(paths: list[str]) -> None:
    transform = unstarve.DecodeCrop(24)
    break_image(paths[1])
    with pytest.raises(ImageError, match=rf"^{paths[1]} cannot be decoded"):
        transform.batch(paths)
    with pytest.raises(ImageError, match="given as bytes cannot be decoded"):
        transform(b"nothing")
    with pytest.raises(FileNotFoundError, match="not there"):
        transform("not there.jpg")
    with pytest.raises(UsageError, match="got int: give ImageFolder loader=str"):
        transform(3)
    with pytest.raises(UsageError, match="size must be"):
        unstarve.DecodeCrop(-1)


def test_arguments_have_the_order_of_the_dataset() -> None:
    ours, the_datasets = (
        inspect.signature(made).parameters for made in (unstarve.DecodeCrop, unstarve.ImageFolderDataset)
    )
    assert [the_datasets[name] for name in ours] == list(ours.values())  # kinds, defaults and types
    assert list(the_datasets)[: len(ours) + 1] == ["root", *ours]
