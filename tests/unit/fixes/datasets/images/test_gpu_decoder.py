"""Decoding on a GPU: what runs there is run on the CPU here, with a decoder that stands in for the GPU's."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import unstarve
from cut_cases import CUTS, MEAN, STD, picture
from image_folders import break_image, make_folder
from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images import device_cut, gpu_decoder, image_codec, image_folder_dataset
from unstarve.fixes.datasets.images.crop_recipe import Recipe, recipe_of
from unstarve.fixes.datasets.images.device_cut import cut_on_device
from unstarve.fixes.datasets.images.image_codec import Cut, Header, PixelValues

CPU = torch.device("cpu")
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


def encoded(seed: int, exif_orientation: int | None = None, **options: Any) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    if exif_orientation is not None:
        exif[0x0112] = exif_orientation
    options = {"format": "JPEG", "quality": 95, "exif": exif} | options
    Image.fromarray(picture(seed).numpy()).save(file, **options)
    return file.getvalue()


def recipe(crop: Any = None, **options: Any) -> Recipe:
    chosen: dict[str, Any] = {
        "size": (24, 30), "scale": (0.08, 1.0), "ratio": (0.75, 4 / 3), "flip": None, "resize": None,
        "mean": None, "std": None, "dtype": torch.uint8, "memory_format": torch.contiguous_format,
        "exif": True, "decode": "cuda",
    }  # fmt: skip
    return recipe_of(crop=crop, **chosen | options)


def stored_pixels(files: Any) -> list[torch.Tensor]:
    """Decode as a GPU does: everything that is asked for, not turned upright."""
    return [image_codec.decode_whole(file, upright=False).permute(2, 0, 1) for file in files]


@pytest.mark.parametrize("canvas_numbers", [device_cut._CANVAS_NUMBERS, 3 * 60 * 80])
def test_a_cut_is_the_codecs_within_a_grey_level(
    canvas_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_cut, "_CANVAS_NUMBERS", canvas_numbers)
    wholes = [picture(seed) for seed in range(len(CUTS))]
    ours, theirs = torch.empty(2, len(CUTS), 3, 24, 30, dtype=torch.uint8)
    cut_on_device([whole.permute(2, 0, 1) for whole in wholes], CUTS, ours, PixelValues())
    assert image_codec.cut(wholes, CUTS, theirs, PixelValues(), threads=1) == [None] * len(CUTS)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 0.25  # the codec rounds between rows and columns


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bytes_become_the_same_numbers(dtype: torch.dtype) -> None:
    values, whole = PixelValues(MEAN, STD), picture(3)
    ours, theirs = torch.empty(2, 1, 3, 60, 80, dtype=dtype)
    cut_on_device([whole.permute(2, 0, 1)], [Cut()], ours, values)
    image_codec.cut([whole], [Cut()], theirs, values, threads=1)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright_as_on_the_cpu(orientation: int) -> None:
    files, wish = [encoded(1, orientation)], recipe()
    headers = [header for header in image_codec.headers(files) if isinstance(header, Header)]
    made, errors = gpu_decoder.make_on(CPU, stored_pixels, files, headers, [Cut()], wish)
    expected, _ = gpu_decoder._made_on_cpu(files, headers, [Cut()], wish)
    assert headers[0].is_plain_jpeg
    assert errors == [None]
    assert (made.int() - expected.int()).abs().max() <= 2


def test_what_a_gpu_does_not_decode_is_made_on_the_cpu_in_its_place() -> None:
    wish = recipe(dtype=torch.float32, mean=MEAN, std=STD, memory_format=torch.channels_last)
    truncated = encoded(5)[:-200]
    files = [
        encoded(1),
        encoded(2, progressive=True),
        encoded(3, format="PNG"),
        truncated,
        encoded(4),
        encoded(6),
    ]
    headers = [header for header in image_codec.headers(files) if isinstance(header, Header)]
    asked: list[bytes] = []

    def refuses_damaged(given: Any) -> list[torch.Tensor | None]:
        asked.extend(given)
        return [None if file is files[5] else stored_pixels([file])[0] for file in given]

    made, errors = gpu_decoder.make_on(CPU, refuses_damaged, files, headers, [Cut()] * 6, wish)
    expected, _ = gpu_decoder._made_on_cpu(files, headers, [Cut()] * 6, wish)
    assert asked == [files[0], files[4], files[5]]
    assert [error is not None for error in errors] == [False, False, False, True, False, False]
    assert isinstance(errors[3], ImageError)
    good = [0, 1, 2, 4, 5]
    assert (made[good] - expected[good]).abs().max() < 2.5 / 255 / min(STD)
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_boxes_are_those_of_the_cpus_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_folder(tmp_path)
    on_gpu = unstarve.ImageFolderDataset(root, size=24, dtype=torch.uint8, decode="cuda")
    on_cpu = unstarve.ImageFolderDataset(root, size=24, dtype=torch.uint8)
    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", lambda *of: gpu_decoder.make_on(CPU, stored_pixels, *of))
    torch.manual_seed(4)
    made = list(DataLoader(on_gpu, batch_size=4, shuffle=True))
    torch.manual_seed(4)
    expected = list(DataLoader(on_cpu, batch_size=4, shuffle=True))
    for (ours, targets), (theirs, other_targets) in zip(made, expected, strict=True):
        assert torch.equal(targets, other_targets)
        assert (ours.int() - theirs.int()).abs().max() <= 2
    assert on_gpu.decoder == "cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_cuda_is_an_error_and_auto_is_the_cpu(tmp_path: Path) -> None:
    root = make_folder(tmp_path)
    with pytest.raises(UsageError, match=r'decode="cuda" cannot work here: there is no CUDA device'):
        unstarve.ImageFolderDataset(root, decode="cuda")[0]
    either = unstarve.ImageFolderDataset(root, size=21, flip=0.0, crop=None, decode="auto")
    assert either.decoder == "auto: not decided before the first batch of 8 images or more"
    expected = unstarve.ImageFolderDataset(root, size=21, flip=0.0, crop=None)[0][0]
    assert torch.equal(either[0][0], expected)
    assert either.decoder == "cpu: there is no CUDA device"
    assert repr(either).endswith("12 images of 2 classes; decode=cpu: there is no CUDA device)")


def headers_of(files: list[bytes]) -> list[Header]:
    return [header for header in image_codec.headers(files) if isinstance(header, Header)]


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for it, and takes 1,000 times as long for a batch as the GPU."""
    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", lambda *of: gpu_decoder.make_on(CPU, stored_pixels, *of))
    times = iter([0.008, 8.0])
    monkeypatch.setattr(gpu_decoder, "_seconds", lambda make: next(times))


@pytest.mark.usefixtures("a_gpu")
def test_auto_takes_a_gpu_that_is_much_faster_on_the_first_batch() -> None:
    files, wish = [encoded(1)] * 8, recipe(decode="auto", size=17)
    gpu_decoder.make_where_asked(files, headers_of(files), [Cut()] * 8, wish)
    assert gpu_decoder.describe_decoder(wish) == "cuda: 1,000 images/s, 1 on the CPU"


@pytest.mark.usefixtures("a_gpu")
def test_auto_leaves_a_gpu_that_is_hardly_faster_to_training(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.008, 0.012])
    monkeypatch.setattr(gpu_decoder, "_seconds", lambda make: next(times))
    files, wish = [encoded(1)] * 8, recipe(decode="auto", size=16)
    gpu_decoder.make_where_asked(files, headers_of(files), [Cut()] * 8, wish)
    assert gpu_decoder.describe_decoder(wish) == "cpu: 667 images/s, 1,000 on the GPU"


@pytest.mark.usefixtures("a_gpu")
def test_with_auto_a_worker_process_uses_the_cpu_whatever_its_parent_chose(tmp_path: Path) -> None:
    images: Any = unstarve.ImageFolderDataset(make_folder(tmp_path), 20, None, decode="auto")
    expected, _ = images.read_batch(range(12))
    assert images.decoder.startswith("cuda")
    with gpu_decoder._choosing:  # as another thread may hold it when a worker is forked
        ((batch, _),) = DataLoader(
            images, batch_size=12, num_workers=1, multiprocessing_context="fork", timeout=300
        )
    assert (batch - expected).abs().max() <= 2.5 / 255


@pytest.mark.usefixtures("a_gpu")
def test_auto_does_not_decide_on_a_look_at_one_image() -> None:
    files, wish = [encoded(1)], recipe(decode="auto", size=18)
    gpu_decoder.make_where_asked(files, headers_of(files), [Cut()], wish)
    assert gpu_decoder.describe_decoder(wish).startswith("auto: not decided")


def test_auto_takes_the_cpu_where_the_gpus_decoder_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*of: Any) -> Any:
        raise UsageError("torchvision's CUDA decoder does not work here: not compiled with nvJPEG support")

    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", fails)
    files, wish = [encoded(1)] * 8, recipe(decode="auto", size=19)
    gpu_decoder.make_where_asked(files, headers_of(files), [Cut()] * 8, wish)
    assert gpu_decoder.describe_decoder(wish).startswith("cpu: torchvision's CUDA decoder does not work here")


class Io:
    """torchvision.io as far as it is used: its decoder refuses what `refuses` says."""

    class ImageReadMode:
        RGB = "RGB"

    def __init__(self, refuses: Callable[[bytes], bool], why: str = "cannot decode") -> None:
        self._refuses = refuses
        self._why = why

    def decode_jpeg(self, given: Any, mode: str, device: torch.device) -> Any:
        if isinstance(given, list):
            return [self.decode_jpeg(one, mode, device) for one in given]
        file = given.numpy().tobytes()
        if self._refuses(file):
            raise RuntimeError(self._why)
        return stored_pixels([file])[0]

    def encode_jpeg(self, pixels: torch.Tensor) -> torch.Tensor:
        file = io.BytesIO()
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, format="JPEG")
        return gpu_decoder._as_tensor(file.getvalue())


def test_one_damaged_file_leaves_the_others_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [encoded(1), encoded(2), encoded(3)]
    monkeypatch.setattr(gpu_decoder, "_torchvision_io", lambda: Io(lambda file: file == files[1]))
    gpu_decoder._check_decoder.cache_clear()
    found = gpu_decoder._decode(CPU, files)
    assert [pixels is None for pixels in found] == [False, True, False]


def test_a_decoder_that_takes_nothing_is_an_error_and_not_a_slow_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_decoder, "_torchvision_io", lambda: Io(lambda file: True))
    gpu_decoder._check_decoder.cache_clear()
    with pytest.raises(UsageError, match="torchvision's CUDA decoder does not work here: cannot decode"):
        gpu_decoder._decode(CPU, [encoded(1)])


def test_a_gpu_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Io(lambda file: True, "Error while decoding JPEG images: CUDA out of memory. Tried to allocate …")
    monkeypatch.setattr(gpu_decoder, "_torchvision_io", lambda: full)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        gpu_decoder._decode(CPU, [encoded(1)])


class Streams:
    """Stands in for the streams of a GPU, and writes down what happens on which."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.made = 0
        self.here = "training"
        monkeypatch.setattr(gpu_decoder, "_streams", {})
        monkeypatch.setattr(torch.cuda, "Stream", self.new)
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        monkeypatch.setattr(torch.cuda, "Event", lambda blocking: self)

    def new(self, device: Any) -> str:
        self.made += 1
        return f"stream {self.made}"

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before, self.here = self.here, stream
        try:
            yield
        finally:
            self.here = before

    def record(self, stream: str) -> None:
        self.log.append(f"event on {stream}")

    def synchronize(self) -> None:
        self.log.append(f"{self.here} waits")

    def work(self) -> None:
        self.log.append(f"work on {self.here}")


GPU = torch.device("cuda", 0)


def test_work_runs_beside_training_is_waited_for_and_its_stream_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = Streams(monkeypatch)
    for _ in range(2):
        with gpu_decoder.beside_training(GPU):
            streams.work()
    assert streams.log == 2 * ["work on stream 1", "event on stream 1", "training waits"]


def test_batches_made_at_once_have_a_stream_each(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with gpu_decoder.beside_training(GPU), gpu_decoder.beside_training(GPU):
        streams.work()
    assert streams.log[0] == "work on stream 2"
    assert streams.made == 2


def test_files_are_not_given_up_before_the_gpu_is_done_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with pytest.raises(OSError, match="no"), gpu_decoder.beside_training(GPU):
        raise OSError("no")
    assert streams.log == ["event on stream 1", "training waits"]


@pytest.mark.parametrize("on_error", ["skip", "zeros"])
def test_failed_images_leave_a_batch_before_training_gets_it(
    on_error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder(tmp_path)
    break_image(sorted(root.rglob("*.jpg"))[0])
    inside: list[torch.device] = []

    @contextmanager
    def beside(device: torch.device) -> Iterator[None]:
        inside.append(device)
        yield

    monkeypatch.setattr(image_folder_dataset, "beside_training", beside)
    images = unstarve.ImageFolderDataset(root, 24, None, on_error=on_error)
    with pytest.warns(RuntimeWarning, match="cannot be decoded"):
        batch, _ = images.read_batch(range(len(images)))
    assert inside == [CPU]
    assert len(batch) == (11 if on_error == "skip" else 12)


def test_a_dataset_for_the_gpu_can_be_pickled(tmp_path: Path) -> None:
    images = unstarve.ImageFolderDataset(make_folder(tmp_path), 24, None, decode="cuda", on_error="skip")
    copied = pickle.loads(pickle.dumps(images))
    assert copied.decoder == "cuda"
    assert copied.samples == images.samples


def test_giving_up_an_epoch_ends_its_threads_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", lambda *of: gpu_decoder.make_on(CPU, stored_pixels, *of))
    images: Any = unstarve.ImageFolderDataset(make_folder(tmp_path), 24, None, decode="cuda")
    loader: Any = unstarve.DataLoader(images, batch_size=4, num_workers=2)
    assert loader.engine == "threads"
    for batch, _ in loader:
        assert len(batch) == 4
        break
    assert sum(len(batch) for batch, _ in loader) == 12


def test_an_exception_in_a_decoding_thread_reaches_the_training_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*of: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu_decoder, "_made_on_gpu", fails)
    images: Any = unstarve.ImageFolderDataset(make_folder(tmp_path), 24, None, decode="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        next(iter(unstarve.DataLoader(images, batch_size=4, num_workers=2)))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_torchs_loader_get_a_clear_error(context: str, tmp_path: Path) -> None:
    dataset = unstarve.ImageFolderDataset(make_folder(tmp_path), decode="cuda")
    with pytest.raises(UsageError, match="works in the training process, not in worker processes"):
        next(iter(DataLoader(dataset, num_workers=1, multiprocessing_context=context)))


def test_cuda_is_not_initialized_before_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used() -> None:
        raise AssertionError("CUDA is initialized")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_lazy_init", used)
    for decode in ("cuda", "auto"):
        images: Any = unstarve.ImageFolderDataset(make_folder(tmp_path), 25, decode=decode)
        loader = unstarve.DataLoader(images, batch_size=8, num_workers=2)
        assert loader.engine == "threads"
        assert repr(images).endswith(f"decode={images.decoder})")
        gpu_decoder.why_no_gpu()


def test_wrong_arguments_say_what_is_right(tmp_path: Path) -> None:
    root = make_folder(tmp_path)
    with pytest.raises(UsageError, match='decode must be "cpu", "cuda" or "auto", got \'gpu\''):
        unstarve.DecodeCrop(decode="gpu")  # type: ignore[arg-type] # that is the point
    with pytest.raises(UsageError, match="cache keeps images that the CPU has decoded"):
        unstarve.ImageFolderDataset(root, decode="cuda", cache="ram")


@pytest.fixture
def no_queues_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUEUES, "")  # so that what the test sets is undone
    monkeypatch.delenv(QUEUES)


@pytest.mark.usefixtures("no_queues_asked_for")
def test_queues_are_asked_for_before_cuda_is_used_and_never_overruled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    unstarve.DecodeCrop(decode="cuda")
    assert QUEUES not in os.environ
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    unstarve.DecodeCrop(decode="cpu")
    assert QUEUES not in os.environ
    unstarve.DecodeCrop(decode="auto")
    assert os.environ[QUEUES] == "32"
    monkeypatch.setenv(QUEUES, "1")
    unstarve.DecodeCrop(decode="cuda")
    assert os.environ[QUEUES] == "1"


@pytest.mark.usefixtures("no_queues_asked_for")
def test_a_dataset_made_too_late_warns_once() -> None:
    gpu_decoder._warn_of_few_queues.cache_clear()
    with pytest.warns(RuntimeWarning, match="make the dataset before the model"):
        gpu_decoder._warn_of_few_queues()
    gpu_decoder._warn_of_few_queues()
