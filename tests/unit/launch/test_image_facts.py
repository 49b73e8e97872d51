"""Whether our dataset of images can replace torchvision's, and with which arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, Subset

from image_folders import make_folder
from torchvision_here import torchvision_here
from unstarve.fixes.datasets.images.image_folder_dataset import ImageFolderDataset
from unstarve.launch.image_facts import image_facts


class Photos(Dataset[Any]):
    def __init__(self, transform: Any) -> None:
        self.transform = transform


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("images"))


def steps(size: int = 32) -> list[Any]:
    transforms = torchvision_here().transforms
    return [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]


def compose(*given: Any) -> Any:
    return torchvision_here().transforms.Compose(list(given))


def test_a_folder_with_known_transforms_can_be_replaced(folder: Path) -> None:
    dataset = torchvision_here().datasets.ImageFolder(folder, compose(*steps()))
    assert image_facts(dataset) == {"recipe": "size=32, exif=False", "like": True}
    assert image_facts(Subset(dataset, [0, 1]))["like"] is True
    assert len(ImageFolderDataset.like(dataset)) == 12


def test_a_folder_that_cannot_be_replaced_says_why(folder: Path) -> None:
    vision = torchvision_here()
    jitter = vision.datasets.ImageFolder(folder, compose(vision.transforms.ColorJitter(), *steps()))
    assert "ColorJitter" in image_facts(jitter)["like_not"]
    chosen = vision.datasets.ImageFolder(folder, compose(*steps()), is_valid_file=lambda path: True)
    assert image_facts(chosen)["like_not"] == "its is_valid_file is not known"
    changed = vision.datasets.ImageFolder(folder, compose(*steps()), target_transform=str)
    assert "target_transform" in image_facts(changed)["like_not"]


def test_other_datasets_have_the_arguments_of_their_transforms() -> None:
    transforms = torchvision_here().transforms
    normalize = transforms.Normalize([0.5, 0.4, 0.3], [0.25, 0.25, 0.25])
    center = compose(transforms.Resize(48), transforms.CenterCrop((40, 44)), steps()[2], normalize)
    assert image_facts(Photos(center)) == {
        "recipe": "size=(40, 44), resize=48, crop='center', mean=(0.5, 0.4, 0.3), "
        "std=(0.25, 0.25, 0.25), exif=False"
    }
    plain = compose(transforms.RandomResizedCrop(40, scale=(0.5, 1.0)), transforms.ToTensor())
    assert image_facts(Photos(plain)) == {"recipe": "size=40, flip=0.0, scale=(0.5, 1.0), exif=False"}


def test_what_is_not_torchvisions_has_no_facts() -> None:
    assert image_facts(Photos(str)) == {}
    assert image_facts(Photos(compose(str))) == {}
    assert image_facts([1, 2]) == {}
