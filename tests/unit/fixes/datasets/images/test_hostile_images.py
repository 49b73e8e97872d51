"""Files made to hurt a training: each is an error that names its file, and takes no memory to speak of."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

import unstarve
from hostile_images import bad_images, flat, many_scans, with_app1
from sample_images import image
from unstarve.errors import CacheTooLargeError, ImageError
from unstarve.fixes.datasets.images import decoded_cache, image_codec, image_files
from unstarve.fixes.datasets.images.image_codec import Cut, PixelValues, decode_cuts, decode_whole, measure
from unstarve.fixes.datasets.images.pillow_decoder import check_scans, count_scans

BAD = bad_images()
SIZE = 24

# Pillow's own warnings of what it then refuses, and ours of the first image that is left out.
quiet = pytest.mark.filterwarnings(
    "ignore:.*decompression bomb.*", "ignore:Tag data larger than file.*", "ignore:.*cannot be decoded.*"
)


def decoded(file: bytes, side: int = SIZE, to: Cut | None = None) -> ImageError | None:
    out = torch.zeros((1, 3, side, side), dtype=torch.uint8)
    (error,) = decode_cuts([file], [to or Cut()], out, PixelValues(), threads=1)
    return error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of all bad images with good ones between them."""
    (tmp_path / "class").mkdir()
    good = image(30, 40)
    for number, file in enumerate(BAD.values()):
        (tmp_path / "class" / f"{number:02} bad.jpg").write_bytes(file)
        if number % 2 == 0:
            (tmp_path / "class" / f"{number:02} good.jpg").write_bytes(good)
    return tmp_path


@quiet
@pytest.mark.usefixtures("implementation")
class TestBoth:
    @pytest.mark.parametrize("what", BAD)
    def test_every_bad_image_is_its_own_error(self, what: str) -> None:
        error = decoded(BAD[what])
        assert isinstance(error, ImageError)
        assert str(error)
        with pytest.raises(ImageError):
            decode_whole(BAD[what])

    @pytest.mark.parametrize(
        "error", [OSError, SyntaxError, ValueError, MemoryError, RecursionError, AssertionError, EOFError]
    )
    def test_whatever_pillow_raises_is_an_image_error(
        self, error: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PIL.Image, "open", failing(error))
        file = image(8, 8, "png")
        assert isinstance(decoded(file), ImageError)
        assert isinstance(measure([file])[0], ImageError)
        with pytest.raises(ImageError, match="not enough memory" if error is MemoryError else "."):
            decode_whole(file)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_what_is_meant_for_the_program_goes_to_it(
        self, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PIL.Image, "open", failing(error))
        for call in (decoded, lambda file: measure([file]), decode_whole):
            with pytest.raises(error):
                call(image(8, 8, "png"))

    def test_pillow_may_fail_as_late_as_it_likes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PIL.Image.Image, "resize", failing(MemoryError))
        assert "not enough memory" in str(decoded(image(8, 8, "png")))

    @pytest.mark.parametrize("size", [(16, 65500), (65500, 16), (1, 65500), (65500, 1)])
    def test_the_middle_of_a_strip_is_cut_out_of_that_alone(self, size: tuple[int, int]) -> None:
        transform = unstarve.DecodeCrop(SIZE, "center", resize=256, dtype=torch.uint8)
        assert transform(flat(*size)).float().std() < 1
        assert transform(flat(*size, "png")).float().std() < 1

    def test_scans_are_limited_by_the_pixels_they_pass_over(self) -> None:
        assert decoded(many_scans(16, 16, 500)) is None
        error = decoded(many_scans(16, 16, 501))
        assert str(error) == "it has 501 scans; the limit at its size is 500"
        error = decoded(many_scans(8192, 8000, 66))
        assert str(error) == "it has 66 scans; the limit at its size is 65"

    def test_scans_of_a_thumbnail_do_not_count(self) -> None:
        for progressive in (False, True):
            file = image(40, 40, progressive=progressive)
            assert decoded(with_app1(file, b"Exif\x00\x00" + many_scans(8, 8, 600))) is None

    @pytest.mark.parametrize("crop", ["random_resized", "center", None])
    @pytest.mark.parametrize("cache", [None, "ram"])
    def test_they_are_left_out_or_zeroed(self, folder: Path, crop: Any, cache: Any) -> None:
        for on_error in ("skip", "zeros"):
            dataset = unstarve.ImageFolderDataset(folder, SIZE, crop, on_error=on_error, cache=cache)
            good = [at for at, (path, _) in enumerate(dataset.samples) if "good" in path]
            images, _ = dataset.read_batch(range(len(dataset)))
            assert len(images) == (len(good) if on_error == "skip" else len(dataset))
            assert [bool(p.any()) for p in images].count(True) == len(good)
            assert dataset.failed == [path for path, _ in dataset.samples if "bad" in path]

    def test_an_error_names_the_file(self, folder: Path) -> None:
        dataset = unstarve.ImageFolderDataset(folder, SIZE, "center")
        for at, (path, _) in enumerate(dataset.samples):
            if "bad" in path:
                for call in (lambda at=at: dataset[at], lambda path=path: unstarve.DecodeCrop(SIZE)(path)):
                    with pytest.raises(ImageError) as raised:
                        call()
                    assert str(raised.value).startswith(f"{path} cannot be decoded: ")


def failing(error: type[BaseException]) -> Any:
    def fail(*given: Any, **options: Any) -> Any:
        raise error

    return fail


@quiet
@pytest.mark.parametrize("loader", [DataLoader, unstarve.DataLoader])
@pytest.mark.parametrize("workers", [0, 2])
def test_training_goes_on_in_every_loader(folder: Path, loader: Any, workers: int) -> None:
    dataset = unstarve.ImageFolderDataset(folder, SIZE, "center", on_error="skip")
    good = sum("good" in path for path, _ in dataset.samples)
    batches = list(loader(dataset, batch_size=6, num_workers=workers))
    assert sum(len(images) for images, _ in batches) == good
    assert len(dataset.failed) == len(BAD)


def test_ordinary_progressive_files_are_far_from_the_limit() -> None:
    assert count_scans(image(40, 40)) == 1
    assert count_scans(image(40, 40, progressive=True)) == 10
    assert count_scans(image(40, 40, mode="L", progressive=True)) == 6
    assert count_scans(b"\xff\xd8\xff") == count_scans(b"") == 0
    check_scans(many_scans(8, 8, 24), 178_956_970)
    check_scans(many_scans(8, 8, 100), 42_000_000)


def test_a_file_that_no_image_fills_is_not_read(folder: Path) -> None:
    path = folder / "class" / "00 good.jpg"
    with path.open("r+b") as file:
        file.truncate(image_files.MAX_FILE_BYTES + 1)  # a hole: it takes no room
    with pytest.raises(ImageError, match=rf"^{path} cannot be decoded: the file has 2863311521 bytes; the"):
        unstarve.DecodeCrop(SIZE)(path)
    dataset = unstarve.ImageFolderDataset(folder, on_error="zeros")
    at = [name for name, _ in dataset.samples].index(str(path))
    with pytest.warns(RuntimeWarning, match="zeros replace it"):
        assert not dataset[at][0].any()


def test_a_fifo_in_the_place_of_an_image_is_not_waited_for(folder: Path) -> None:
    path = folder / "class" / "00 good.jpg"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ImageError, match=rf"^{path} cannot be decoded: it is not a regular file"):
        unstarve.DecodeCrop(SIZE)(path)


def test_no_program_runs_for_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a program was started"))
    error = decoded(BAD["program for Ghostscript"])
    assert str(error) == "not an image of a known format"


def test_a_budget_is_checked_before_large_images_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "class").mkdir()
    for number in range(20):
        (tmp_path / "class" / f"{number}.jpg").write_bytes(flat(100, 100))
    seen: list[int] = []
    decode = image_codec.decode_whole

    def counted(file: Any, *, upright: bool) -> torch.Tensor:
        seen.append(1)
        return decode(file, upright=upright)

    monkeypatch.setattr(image_codec, "decode_whole", counted)
    monkeypatch.setattr(decoded_cache, "_PROBED_BYTES", 3 * 30_000)
    with pytest.raises(CacheTooLargeError, match="20 samples"):
        unstarve.ImageFolderDataset(tmp_path, cache="ram", budget="300KB")
    assert len(seen) == 3


LIMITED = """
    import resource, sys
    import torch
    import unstarve
    from hostile_images import flat, many_scans
    from unstarve.errors import ImageError
    from unstarve.fixes.datasets.images import image_codec

    torch.set_num_threads(1)
    small = image_codec.decode_whole(flat(8, 8)), image_codec.decode_whole(flat(8, 8, "png"))
    strips = [flat(16, 65500), flat(65500, 16), flat(1, 65500), flat(1, 2**20, "png", "L")]
    giants = [flat(12000, 12000, "jpeg", "L"), flat(12000, 9000, "png", "1"), many_scans(12000, 12000, 20)]
    if sys.argv[1] == "pillow":
        image_codec.native = lambda: None
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (160 << 20),) * 2)
    for crop in ("center", "random_resized", None):
        for strip in strips:
            unstarve.DecodeCrop(224, crop)(strip)
    for giant in giants:
        try:
            image_codec.decode_whole(giant)
        except ImageError:
            print("failed")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.parametrize("which", ["native", "pillow"])
def test_memory_is_that_of_the_crop_and_where_it_ends_the_image_fails(which: str) -> None:
    here = Path(__file__).parents[4] / "helpers"
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(LIMITED), which]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=here, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["failed"] * 3
