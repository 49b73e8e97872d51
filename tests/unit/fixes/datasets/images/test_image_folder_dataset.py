"""ImageFolderDataset: torchvision's images, whatever loader and engine ask for them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

import unstarve
from image_folders import break_image, make_folder
from same_batches import assert_same
from torchvision_here import torchvision_here
from unstarve.collect.describe import failed_images
from unstarve.errors import ImageError, UsageError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 24


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("images"))


def epoch(loader: Any, seed: int = 5) -> list[Any]:
    torch.manual_seed(seed)
    return list(loader)


def assert_alike(these: list[Any], those: list[Any]) -> None:
    """As alike as two JPEG decoders are: images are 0–1 here."""
    for (images, targets), (other_images, other_targets) in zip(these, those, strict=True):
        assert torch.equal(targets, other_targets)
        difference = (images - other_images).abs()
        assert difference.mean() < 1 / 255
        assert difference.square().mean() < 10 ** (-40 / 10)  # a PSNR above 40 dB


@pytest.mark.parametrize("workers", [0, 2])
def test_with_the_same_seed_images_are_torchvisions(root: Path, workers: int) -> None:
    vision = torchvision_here()
    steps = [vision.transforms.RandomResizedCrop(SIZE), vision.transforms.RandomHorizontalFlip()]
    transform = vision.transforms.Compose([*steps, vision.transforms.ToTensor()])
    theirs = vision.datasets.ImageFolder(root, transform)
    ours = unstarve.ImageFolderDataset(root, size=SIZE)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "num_workers": workers}
    expected = epoch(DataLoader(theirs, **options))
    assert_alike(epoch(unstarve.DataLoader(ours, **options)), expected)


def test_centers_are_torchvisions(root: Path) -> None:
    vision = torchvision_here()
    steps = [vision.transforms.Resize(40), vision.transforms.CenterCrop((SIZE, 31))]
    normalize = vision.transforms.Normalize(MEAN, STD)
    theirs = vision.datasets.ImageFolder(
        root, vision.transforms.Compose([*steps, vision.transforms.ToTensor(), normalize])
    )
    ours = unstarve.ImageFolderDataset(root, (SIZE, 31), "center", resize=40, mean=MEAN, std=STD)
    images = torch.stack([ours[at][0] for at in range(len(ours))])
    expected = torch.stack([theirs[at][0] for at in range(len(theirs))])
    assert (images - expected).abs().mean() < 1 / 255 / min(STD)
    assert torch.equal(images, unstarve.DataLoader(ours, batch_size=len(ours)).__iter__().__next__()[0])


def test_a_flipped_center_is_the_center_flipped(root: Path) -> None:
    options: dict[str, Any] = {"size": 21, "resize": 40, "dtype": torch.uint8}
    plain = unstarve.ImageFolderDataset(root, crop="center", **options)
    flipped = unstarve.ImageFolderDataset(root, crop="center", flip=1.0, **options)
    for at in range(len(plain)):
        assert torch.equal(flipped[at][0], plain[at][0].flip(-1))


def test_every_engine_gives_the_batches_of_torchs_workers(root: Path) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=SIZE)
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "num_workers": 2}
    expected = epoch(DataLoader(dataset, **options))
    for engine in ("threads", "ring", "stock"):
        loader = unstarve.DataLoader(dataset, engine=engine, **options)
        assert_same(epoch(loader), expected)
    assert unstarve.DataLoader(dataset, **options).engine == "threads"


def test_persistent_threads_go_on_where_torchs_workers_would(root: Path) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=SIZE)
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "persistent_workers": True}
    epochs = []
    for loader in (DataLoader(dataset, **options), unstarve.DataLoader(dataset, **options)):
        torch.manual_seed(1)
        first = [batch for batch, _ in zip(loader, range(3), strict=False)]  # and leaves in its middle
        epochs.append([*first, *loader, *loader])
    assert_same(*epochs)


def test_without_workers_what_is_random_is_as_if_drawn_in_the_training_loop(root: Path) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=SIZE)
    expected = epoch(DataLoader(dataset, batch_size=2))
    loader = unstarve.DataLoader(dataset, batch_size=2)
    assert loader.engine == "threads"
    assert_same(epoch(loader), expected)
    assert (
        unstarve.DataLoader(unstarve.ImageFolderDataset(root, crop="center"), batch_size=2).engine
        == "threads"
    )


def test_single_samples_batches_and_parts_are_of_one_kind(root: Path) -> None:
    dataset = unstarve.ImageFolderDataset(root, SIZE, None, dtype=torch.uint8)
    image, target = dataset[-1]
    assert (tuple(image.shape), image.dtype, target) == ((3, SIZE, SIZE), torch.uint8, 1)
    part = dataset[3:7]
    assert isinstance(part, Subset)
    ((images, targets),) = unstarve.DataLoader(part, batch_size=4, num_workers=1)
    assert targets.tolist() == dataset.targets[3:7]
    assert torch.equal(images, torch.stack([dataset[at][0] for at in range(3, 7)]))
    samples = dataset.__getitems__([0, 5])
    assert [target for _, target in samples] == [dataset.targets[0], dataset.targets[5]]
    with pytest.raises(IndexError, match="12 is out of range for 12 images"):
        dataset[12]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_are_those_of_to_tensor_and_normalize(root: Path, dtype: torch.dtype) -> None:
    bytes_ = unstarve.ImageFolderDataset(root, SIZE, None, dtype=torch.uint8)[0][0]
    plain = unstarve.ImageFolderDataset(root, SIZE, None, dtype=dtype)[0][0]
    finished = unstarve.ImageFolderDataset(root, SIZE, None, dtype=dtype, mean=MEAN, std=STD)[0][0]
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    torch.testing.assert_close(plain, (bytes_.float() / 255).to(dtype))
    torch.testing.assert_close(finished, ((bytes_.float() / 255 - mean) / std).to(dtype))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("cut", ["random_resized", "center"])
def test_channels_last_holds_the_same_numbers(root: Path, cut: Any, workers: int) -> None:
    first = unstarve.ImageFolderDataset(root, SIZE, cut)
    last = unstarve.ImageFolderDataset(root, SIZE, cut, memory_format=torch.channels_last)
    options: dict[str, Any] = {"batch_size": 4, "num_workers": workers}
    batches = epoch(unstarve.DataLoader(last, **options))
    assert_same(batches, epoch(unstarve.DataLoader(first, **options)), strides=False)
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images, _ in batches)


def test_a_broken_image_is_an_error_that_names_it(tmp_path: Path) -> None:
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), size=SIZE)
    path = dataset.samples[4][0]
    break_image(path)
    with pytest.raises(ImageError, match=rf"^{path} cannot be decoded: "):
        dataset[4]
    loader = unstarve.DataLoader(dataset, batch_size=2, num_workers=2)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    with pytest.raises(ImageError, match="cannot be decoded"):
        next(batches)
    assert len(list(batches)) == 3
    assert dataset.failed == []


def test_a_missing_file_is_an_error_whatever_on_error_says(tmp_path: Path) -> None:
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), on_error="skip")
    Path(dataset.samples[0][0]).unlink()
    with pytest.raises(FileNotFoundError):
        dataset[0]


@pytest.mark.parametrize("engine", ["threads", "stock"])
@pytest.mark.parametrize("cache", [None, "ram"])
@pytest.mark.filterwarnings("ignore:.*cannot be decoded.*:RuntimeWarning")
def test_skipped_images_leave_shorter_batches_and_are_counted(
    tmp_path: Path, engine: str, cache: Any
) -> None:
    whole = unstarve.ImageFolderDataset(make_folder(tmp_path), SIZE, None)
    expected = [whole[at] for at in (0, 2, 3, 4)]
    samples = whole.samples
    break_image(samples[1][0])
    Path(samples[5][0]).write_bytes(b"")
    last = torch.channels_last
    dataset = unstarve.ImageFolderDataset(
        tmp_path, SIZE, None, on_error="skip", cache=cache, memory_format=last
    )
    loader = unstarve.DataLoader(Subset(dataset, range(6)), batch_size=3, num_workers=2, engine=engine)
    for _ in range(2):
        batches = list(loader)
        assert [len(images) for images, _ in batches] == [2, 2]
        assert all(images.is_contiguous(memory_format=last) for images, _ in batches)
        assert torch.equal(torch.cat([p for p, _ in batches]), torch.stack([p for p, _ in expected]))
        assert torch.cat([t for _, t in batches]).tolist() == [t for _, t in expected]
    assert dataset.failed == [samples[1][0], samples[5][0]]


def test_what_cannot_be_skipped_is_raised(tmp_path: Path) -> None:
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), size=SIZE, on_error="skip")
    for path, _ in dataset.samples[:2]:
        break_image(path)
    with pytest.warns(RuntimeWarning, match="it is left out"), pytest.raises(ImageError, match="on_error="):
        dataset.__getitems__([0, 1])


def test_zeros_take_the_place_of_broken_images(tmp_path: Path) -> None:
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), SIZE, "center", on_error="zeros")
    break_image(dataset.samples[1][0])
    with pytest.warns(RuntimeWarning, match="zeros replace it"):
        images, targets = dataset.read_batch([0, 1, 2])
    assert [bool(image.any()) for image in images] == [True, False, True]
    assert targets.tolist() == dataset.targets[:3]
    assert len(dataset.failed) == 1


def test_a_report_can_count_the_failed_even_of_datasets_that_are_gone(tmp_path: Path) -> None:
    before = failed_images()
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), size=SIZE, on_error="zeros")
    for path, _ in dataset.samples[:2]:
        break_image(path)
    with pytest.warns(RuntimeWarning, match="cannot be decoded"):
        dataset.read_batch([0, 1, 2])
    dataset.read_batch([2, 1, 0])
    assert failed_images() == before + 2
    del dataset
    assert failed_images() == before + 2


def test_a_copy_gives_the_same_images(root: Path) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=SIZE, on_error="zeros", cache="ram")
    copied = pickle.loads(pickle.dumps(dataset))
    assert copied.samples == dataset.samples
    assert_same(epoch(DataLoader(copied, batch_size=4)), epoch(DataLoader(dataset, batch_size=4)))


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"crop": "middle"}, "crop must be"),
        ({"size": 0}, "size must be"),
        ({"size": (1, 2, 3)}, "size must be"),
        ({"size": "large"}, "size must be"),
        ({"scale": (1.0, 0.5)}, "scale must be"),
        ({"ratio": (0.0, 1.0)}, "ratio must be"),
        ({"flip": 2}, "flip must be"),
        ({"crop": "center", "resize": 20}, "resize must be"),
        ({"mean": MEAN}, "go together"),
        ({"mean": MEAN, "std": (1, 1, 0)}, "std > 0"),
        ({"mean": MEAN, "std": STD, "dtype": torch.uint8}, "floating-point dtype"),
        ({"dtype": torch.float64}, "dtype must be"),
        ({"memory_format": torch.preserve_format}, "memory_format must be"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"cache": "tape"}, "cache must be"),
        ({"cache": "ram", "budget": "much"}, "budget must be"),
        ({"cache": "ram", "over_budget": "more"}, "over_budget must be"),
    ],
)
def test_arguments_that_make_no_sense_are_told(root: Path, wish: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        unstarve.ImageFolderDataset(root, **wish)
