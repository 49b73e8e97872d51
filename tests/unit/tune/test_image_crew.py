"""Images of an image folder that unstarve reads for a while: the same samples, in the same order."""

from __future__ import annotations

import hashlib
import io
import itertools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, TensorDataset

import unstarve
from image_folders import break_image, make_folder
from torchvision_here import torchvision_here
from unstarve.fixes.datasets.images import gpu_decoder
from unstarve.fixes.datasets.images.torchvision_folder import arguments_of
from unstarve.fixes.loader.engines import thread_iterator
from unstarve.model import LoaderSettings
from unstarve.tune import live_search, thread_crews
from unstarve.tune.autotune import AutotunedLoader
from unstarve.tune.search_result import SearchResult
from unstarve.tune.step_window import Block, StepWindow, WindowCollector, WindowPace
from unstarve.tune.thread_crews import DrawnCrew
from unstarve.tune.tunability import tunability_of

COUNT = 40
HASTY = WindowPace(min_steps=1, min_s=0.0, max_s=0.0)
OWN = LoaderSettings(1, 2)

# Cores are few where tests run: torch warns about the user's own settings, as it does without us.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each image is the only one of its class, so that a target says which it is."""
    return make_folder(tmp_path_factory.mktemp("images"), count=COUNT, classes=COUNT)


def folder(root: Path, *, random: bool = True, extra: tuple[Any, ...] = ()) -> Any:
    vision = torchvision_here()
    steps = vision.transforms
    crop = [steps.RandomResizedCrop(16)] if random else [steps.Resize(20), steps.CenterCrop(16)]
    return vision.datasets.ImageFolder(root, steps.Compose([*crop, *extra, steps.ToTensor()]))


def tuned(loader: DataLoader[Any], **options: Any) -> Any:
    return AutotunedLoader(loader, {"pace": HASTY, "images": True, **options})


def use_script(monkeypatch: pytest.MonkeyPatch, *asked: LoaderSettings) -> None:
    """Let the search ask for these in turn, for ever."""

    class Scripted:
        best_so_far, predicted, untried = asked[0], None, ()

        def __init__(self, *_: Any) -> None:
            pass

        def run(self) -> Any:
            for settings in itertools.cycle(asked):
                _ = yield settings

        def conclude(self) -> SearchResult:
            return SearchResult(asked[0], None, "scripted")

    monkeypatch.setattr(live_search, "Search", Scripted)


class Planned(WindowCollector):
    """Measures what is planned, not what a clock says."""

    image_s: ClassVar[float]

    def add(self, asked: float, got: float) -> StepWindow | None:
        super().add(asked, got)
        period = self.image_s if self.settings.part == "images" else 0.03
        return StepWindow(self.settings, (Block(10, 10 * period),) * 2, 0.9 * period)

    def end_epoch(self, at: float) -> None: ...


def use_plan(monkeypatch: pytest.MonkeyPatch, image_s: float) -> None:
    monkeypatch.setattr(Planned, "image_s", image_s, raising=False)
    monkeypatch.setattr(live_search, "WindowCollector", Planned)
    for costs in ("_with_cpu", "_with_start"):
        monkeypatch.setattr(live_search.LiveSearch, costs, lambda _, window: window)


def until_settled(loader: Any) -> None:
    for _ in range(100):
        for _ in loader:
            pass
        if loader.tuning.settled:
            return
    raise AssertionError("it never settles")


SWITCHES = (
    OWN,
    LoaderSettings(2, 2, part="images"),
    LoaderSettings(1, 2, part="images"),
    LoaderSettings(1, 4, part="images"),
    LoaderSettings(2, 1),
)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("wrap", [lambda whole: whole, lambda whole: Subset(whole, range(3, 37))])
def test_each_sample_comes_once_in_the_samplers_order_while_readers_change(
    root: Path, monkeypatch: pytest.MonkeyPatch, wrap: Any, persistent: bool
) -> None:
    use_script(monkeypatch, *SWITCHES)
    dataset = wrap(folder(root))

    def history(loader: Any) -> tuple[str, torch.Tensor]:
        torch.manual_seed(5)
        digest = hashlib.sha256()
        for _ in range(3):
            for images, targets in loader:
                assert images.shape[1:] == (3, 16, 16)
                digest.update(str(targets.tolist()).encode())
        return digest.hexdigest(), torch.get_rng_state()

    loader = DataLoader(dataset, batch_size=3, shuffle=True, num_workers=1, persistent_workers=persistent)
    ours = tuned(loader)
    our_digest, our_state = history(ours)
    their_digest, their_state = history(loader)
    assert our_digest == their_digest
    assert torch.equal(our_state, their_state)
    assert {trial.settings.part == "images" for trial in ours.tuning.trials} == {False, True}


def test_pixels_are_the_datasets_but_for_what_two_decoders_differ_by(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, OWN, LoaderSettings(2, 2, part="images"))
    loader = DataLoader(folder(root, random=False), batch_size=4, num_workers=1)
    differences = []
    for (ours, targets), (theirs, other_targets) in zip(tuned(loader), loader, strict=True):
        assert torch.equal(targets, other_targets)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        differences.append((ours - theirs).abs().mean().item())
    assert max(differences) < 1 / 255


def pixels_of(files: Any) -> list[torch.Tensor]:
    """Stands in for the decoder of a GPU."""
    images = [Image.open(io.BytesIO(bytes(file))).convert("RGB") for file in files]
    return [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that trains on a GPU, whose part in this the CPU plays."""
    host = torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (64 << 30, 80 << 30))
    monkeypatch.setattr(thread_iterator, "_gpu_of_this_thread", lambda: lambda: None)
    for module in (gpu_decoder, thread_crews):
        monkeypatch.setattr(module, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", lambda *of: gpu_decoder.make_on(host, pixels_of, *of))


@pytest.mark.usefixtures("gpu")
def test_the_gpu_makes_the_same_batches_of_an_image_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, OWN, LoaderSettings(2, 2, part="gpu_images"))
    loader = DataLoader(folder(root, random=False), batch_size=4, num_workers=1)
    ours = tuned(loader, parts=True)
    for _ in range(5):
        for (images, targets), (their_images, their_targets) in zip(ours, loader, strict=True):
            assert torch.equal(targets, their_targets)
            assert images.device == their_images.device
            assert (images - their_images).abs().mean() < 1 / 255
    assert {trial.settings.part for trial in ours.tuning.trials} == {"", "gpu_images"}


@pytest.mark.usefixtures("gpu")
def test_the_gpu_is_tried_only_where_training_uses_it_and_has_memory_left(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(folder(root), batch_size=4)
    assert "gpu_images" in tunability_of(loader, images=True, parts=True).parts
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 80 << 30))
    refused = tunability_of(loader, images=True, parts=True).refused
    assert refused["gpu_images"] == "only 1.1 GB of its memory is free"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    without = tunability_of(loader, images=True, parts=True)
    assert "gpu_images" not in {*without.parts, *without.refused}


def test_it_is_chosen_where_it_is_faster(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plan(monkeypatch, 0.01)
    loader = tuned(DataLoader(folder(root), batch_size=4, num_workers=1), max_workers=2)
    until_settled(loader)
    found = loader.tuning
    assert found.chosen.part == "images"
    assert not found.keep
    assert found.gain is not None
    assert found.gain.ratio == pytest.approx(3.0)
    assert "images read by unstarve, " in loader.explain()
    assert isinstance(iter(loader)._crew, DrawnCrew)


@pytest.mark.parametrize("image_s", [0.04, 0.029])
def test_it_is_not_chosen_where_it_is_not_or_hardly_faster(
    root: Path, monkeypatch: pytest.MonkeyPatch, image_s: float
) -> None:
    use_plan(monkeypatch, image_s)
    loader = tuned(DataLoader(folder(root), batch_size=4, num_workers=1), max_workers=2)
    until_settled(loader)
    assert loader.tuning.chosen.part != "images"
    assert any(trial.settings.part == "images" for trial in loader.tuning.trials)


def test_unless_it_is_asked_for_nothing_of_it_is_tried(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plan(monkeypatch, 0.01)
    plain = DataLoader(folder(root), batch_size=4, num_workers=1)
    not_asked = AutotunedLoader(plain, {"pace": HASTY, "max_workers": 2})
    exact = tuned(plain, deterministic=True)
    for loader in (not_asked, exact):
        until_settled(loader)
        assert not any(trial.settings.part == "images" for trial in loader.tuning.trials)


def test_what_unstarve_cannot_read_is_left_to_the_dataset_and_said(root: Path) -> None:
    jittered = folder(root, extra=(torchvision_here().transforms.ColorJitter(),))
    cases = [
        (DataLoader(jittered), "ColorJitter"),
        (DataLoader(folder(root), num_workers=1, worker_init_fn=print), "worker_init_fn"),
        (DataLoader(folder(root), collate_fn=list), "collate_fn"),
        (DataLoader(folder(root), batch_size=None), "batch_size=None"),
    ]
    for loader, words in cases:
        said = [note for note in tuned(loader).tuning.notes if "read the images" in note]
        assert len(said) == 1
        assert words in said[0]
    assert tuned(DataLoader(TensorDataset(torch.arange(4)))).tuning.notes == ()


def test_images_are_turned_as_little_as_the_dataset_turns_them(tmp_path: Path) -> None:
    dataset = folder(make_folder(tmp_path, count=4, classes=4))
    path = dataset.samples[2][0]
    with Image.open(path) as image:
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(path, exif=exif)
    assert tuned(DataLoader(dataset, batch_size=2)).tuning.notes == ()
    assert arguments_of(dataset)["exif"] is False


def test_a_image_that_cannot_be_decoded_is_the_datasets_to_complain_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, LoaderSettings(1, 2), LoaderSettings(2, 2, part="images"))
    dataset = folder(make_folder(tmp_path, count=24, classes=24))
    break_image(dataset.samples[13][0])
    loader = tuned(DataLoader(dataset, batch_size=2, num_workers=1))
    iterator, seen, failures = iter(loader), [], 0
    while True:
        try:
            seen += next(iterator)[1].tolist()
        except OSError:  # Pillow's own
            failures += 1
        except StopIteration:
            break
    assert failures == 1
    assert seen == [target for target in range(24) if target not in (12, 13)]


def test_a_transform_that_becomes_unknown_does_not_cost_an_epoch(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plan(monkeypatch, 0.01)
    dataset = folder(root)
    loader = tuned(DataLoader(dataset, batch_size=4, num_workers=1), max_workers=2)
    until_settled(loader)
    dataset.transform = torchvision_here().transforms.Compose([lambda image: torch.zeros(1)])
    assert [target for _, targets in loader for target in targets.tolist()] == list(range(COUNT))
    assert loader.tuning.chosen.part != "images"
    assert "could not be started" in loader.tuning.notes[-1]


def test_autotune_takes_it_as_an_argument(root: Path) -> None:
    loader = unstarve.autotune(DataLoader(folder(root), batch_size=4), images=True, budget_steps=1)
    assert sorted(target for _, targets in loader for target in targets.tolist()) == list(range(COUNT))
