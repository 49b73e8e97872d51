"""torchvision's own ImageFolder: replaced with its transforms, or read by threads with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

import unstarve
from image_folders import make_folder
from sample_images import image
from torchvision_here import torchvision_here
from unstarve.errors import UsageError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("images"))


def images(loader: Any) -> torch.Tensor:
    torch.manual_seed(6)
    return torch.cat([batch for batch, _ in loader])


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, lambda dataset: Subset(dataset, range(1, 9))])
def test_a_folder_with_decode_crop_is_read_by_threads(root: Path, wrap: Any) -> None:
    folder = torchvision_here().datasets.ImageFolder
    dataset = wrap(folder(root, unstarve.DecodeCrop(24), loader=str))
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "num_workers": 2}
    ours = unstarve.DataLoader(dataset, **options)
    assert ours.engine == "threads"
    theirs = DataLoader(dataset, **options)
    for seed in range(2):
        torch.manual_seed(seed)
        expected = list(theirs)
        torch.manual_seed(seed)
        for (these, targets), (those, other_targets) in zip(ours, expected, strict=True):
            assert torch.equal(these, those)
            assert torch.equal(targets, other_targets)


def test_a_folder_that_does_more_is_left_to_worker_processes(root: Path) -> None:
    folder = torchvision_here().datasets.ImageFolder
    transform = unstarve.DecodeCrop(24)

    class Own(folder):  # type: ignore[misc, valid-type] # found at run time
        pass

    others = [
        folder(root, transform, target_transform=abs, loader=str),
        folder(root, transform, loader=Path),
        Own(root, transform, loader=str),
    ]
    for dataset in others:
        assert unstarve.DataLoader(dataset, batch_size=2, num_workers=1).engine == "ring"


def test_a_dataset_is_replaced_with_its_transforms(root: Path) -> None:
    vision = torchvision_here()
    steps = vision.transforms
    training = [steps.RandomResizedCrop((20, 24), (0.3, 0.9), (0.5, 2.0)), steps.RandomHorizontalFlip(0.3)]
    evaluating = [steps.Resize(30), steps.CenterCrop(24)]
    for first in (training, evaluating):
        transform = steps.Compose([*first, steps.ToTensor(), steps.Normalize(MEAN, STD)])
        theirs = vision.datasets.ImageFolder(root, transform)
        ours = unstarve.ImageFolderDataset.like(theirs)
        difference = images(DataLoader(ours, batch_size=4)) - images(DataLoader(theirs, batch_size=4))
        assert difference.abs().mean() < 1 / 255 / min(STD)
        assert ours.samples == theirs.samples


def test_what_cannot_be_replaced_is_named(root: Path) -> None:
    vision = torchvision_here()
    steps, folder = vision.transforms, vision.datasets.ImageFolder
    crop, to_tensor = steps.RandomResizedCrop(24), steps.ToTensor()
    jittered = steps.Compose([crop, steps.ColorJitter(), to_tensor])
    nearest = steps.Compose(
        [steps.RandomResizedCrop(24, interpolation=steps.InterpolationMode.NEAREST), to_tensor]
    )
    squashed = steps.Compose([steps.Resize((30, 40)), steps.CenterCrop(24), to_tensor])
    cases = [
        (folder(root, jittered), r"\(RandomResizedCrop, ColorJitter, ToTensor\) cannot be replaced"),
        (folder(root, nearest), "only bilinear"),
        (folder(root, squashed), "its Resize"),
        (folder(root, to_tensor), "must be a Compose"),
        (folder(root), "must be a Compose"),
        (folder(root, steps.Compose([crop, to_tensor]), target_transform=abs), "target_transform"),
        (folder(root, loader=str), "the default loader"),
        ([1, 2, 3], "only a torchvision ImageFolder"),
    ]
    for dataset, words in cases:
        with pytest.raises(UsageError, match=words):
            unstarve.ImageFolderDataset.like(dataset)


def test_options_are_added_to_what_the_transforms_say(root: Path) -> None:
    vision = torchvision_here()
    transform = vision.transforms.Compose(
        [vision.transforms.RandomResizedCrop(24), vision.transforms.ToTensor()]
    )
    dataset = unstarve.ImageFolderDataset.like(vision.datasets.ImageFolder(root, transform), cache="ram")
    assert "decoded: " in repr(dataset)


def test_a_folder_that_is_replaced_turns_no_image_as_torchvision_turns_none(tmp_path: Path) -> None:
    vision, steps = torchvision_here(), torchvision_here().transforms
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "turned.jpg").write_bytes(image(64, 90, orientation=6))
    theirs = vision.datasets.ImageFolder(
        tmp_path, steps.Compose([steps.Resize(48), steps.CenterCrop(48), steps.ToTensor()])
    )
    ours = unstarve.ImageFolderDataset.like(theirs)
    assert (ours[0][0] - theirs[0][0]).abs().mean() < 1 / 255
    turned = unstarve.ImageFolderDataset.like(theirs, exif=True)[0][0]
    assert (turned.rot90(1, (1, 2)) - theirs[0][0]).abs().mean() < 2 / 255
    by_transform = unstarve.DecodeCrop(48, "center", resize=48, exif=False)
    assert torch.equal(by_transform(tmp_path / "class" / "turned.jpg"), ours[0][0])


def test_a_subset_is_replaced_as_one(root: Path) -> None:
    vision = torchvision_here()
    transform = vision.transforms.Compose(
        [vision.transforms.RandomResizedCrop(24), vision.transforms.ToTensor()]
    )
    theirs = Subset(vision.datasets.ImageFolder(root, transform), [7, 2, 5])
    ours = unstarve.ImageFolderDataset.like(theirs)
    assert [ours[at][1] for at in range(3)] == [theirs[at][1] for at in range(3)]
    assert isinstance(ours.dataset, unstarve.ImageFolderDataset)


def test_a_dataset_with_other_samples_than_its_folder_is_refused(root: Path) -> None:
    vision = torchvision_here()
    transform = vision.transforms.Compose(
        [vision.transforms.RandomResizedCrop(24), vision.transforms.ToTensor()]
    )
    dataset = vision.datasets.ImageFolder(root, transform)
    dataset.samples = dataset.samples[::2]
    with pytest.raises(UsageError, match="samples are not those of the folder"):
        unstarve.ImageFolderDataset.like(dataset)


def test_a_transform_that_chooses_among_others_is_no_compose(root: Path) -> None:
    steps = torchvision_here().transforms
    chooses = steps.RandomChoice([steps.RandomResizedCrop(24), steps.ToTensor()])
    with pytest.raises(UsageError, match="must be a Compose"):
        unstarve.ImageFolderDataset.like(torchvision_here().datasets.ImageFolder(root, chooses))
