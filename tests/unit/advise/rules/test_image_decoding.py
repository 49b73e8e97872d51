"""Runs that decode images are shown the way that decodes less."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import diagnosis_of
from unstarve.advise.all_rules import advise
from unstarve.model import Advice, Cause, Diagnosis, FunctionCost

SITE = "/usr/lib/python3/site-packages"
DECODE = FunctionCost("ImageFile.load", f"{SITE}/PIL/ImageFile.py", 296, Cause.CPU, 5.0, 0.5)
RESIZE = FunctionCost("Image.resize", f"{SITE}/PIL/Image.py", 2332, Cause.CPU, 2.0, 0.2)
TO_TENSOR = FunctionCost(
    "to_tensor", f"{SITE}/torchvision/transforms/functional.py", 127, Cause.CPU, 1.0, 0.1
)
JITTER = FunctionCost("adjust_hue", f"{SITE}/torchvision/transforms/functional.py", 300, Cause.CPU, 2.0, 0.2)
FOLDER = {"module": "torchvision.datasets.folder", "length": 100, "like": True, "recipe": "size=96"}
PHOTOS = {"module": "photos", "length": 100, "recipe": "size=96, mean=(0.5, 0.4, 0.3), exif=False"}
CONFIG = {"collate_fn": "default_collate", "batch_size": 8}
TIMED = FunctionCost("RandomResizedCrop", "transform", 0, Cause.CPU, 3.0, 0.3)


def decoding(*functions: FunctionCost, cause: Cause = Cause.CPU, **given: Any) -> Diagnosis:
    usual = {"workers": 2, "cpu_s": 0.3, "cores": 2, "step_s": 0.15, "dataset": FOLDER, "config": CONFIG}
    wanted: dict[str, Any] = usual | given
    return dataclasses.replace(diagnosis_of(cause, **wanted), functions=functions)


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(with_forecaster(d))[0]}


def test_a_folder_of_images_becomes_our_dataset_and_the_users_call_stays() -> None:
    source = "DataLoader(train_set, batch_size=bs, num_workers=2)"
    d = decoding(DECODE, RESIZE, TO_TENSOR, TIMED, source=source)
    found = advised(d)
    one = found["decode-crop"]
    assert "unstarve.ImageFolderDataset" in one.title
    assert "decoding takes 50% and cropping, resizing and converting 30%" in one.why
    assert one.code.splitlines()[2:4] == [
        "unstarve.DataLoader(",
        "    unstarve.ImageFolderDataset.like(train_set),",
    ]
    assert "same crops and flips" in one.note
    assert max(map(len, one.code.splitlines())) <= 72
    assert one.speedup is not None
    assert one.speedup.predicted > 1
    assert "cheaper-work" not in found


def on_gpu(**given: Any) -> Diagnosis:
    return dataclasses.replace(decoding(DECODE, RESIZE, TO_TENSOR, **given), device="cuda")


def test_a_gpu_that_the_cores_cannot_feed_decodes_the_folder() -> None:
    found = advised(on_gpu(source="DataLoader(train_set, num_workers=2)", step_s=0.2, free_s=0.01))
    one, on_cpu = found["decode-gpu"], found["decode-crop"]
    assert "unstarve.ImageFolderDataset.like(train_set, decode='cuda')" in one.code
    assert "of the 20× that would be possible" in one.why
    assert "Batches are then on the GPU" in one.note
    assert one.speedup is not None
    assert on_cpu.speedup is not None
    assert one.speedup.predicted > on_cpu.speedup.predicted


def test_the_gpu_is_left_alone_where_the_cpu_feeds_it_or_there_is_none() -> None:
    assert "decode-gpu" not in advised(decoding(DECODE, RESIZE, TO_TENSOR, step_s=0.2, free_s=0.01))
    assert "decode-gpu" not in advised(on_gpu(step_s=0.15, free_s=0.14))
    of_a_library = {**CONFIG, "remade_by": "accelerate"}
    assert "decode-gpu" not in advised(on_gpu(step_s=0.2, free_s=0.01, config=of_a_library))
    own = decoding(DECODE, RESIZE, dataset=PHOTOS, step_s=0.2, free_s=0.01)
    assert "decode-gpu" not in advised(dataclasses.replace(own, device="cuda"))


def test_other_datasets_get_the_transform_with_their_own_size_and_normalization() -> None:
    facts = {**PHOTOS, "opened": "self.paths[index]"}
    one = advised(decoding(DECODE, RESIZE, TO_TENSOR, dataset=facts))["decode-crop"]
    assert "unstarve.DecodeCrop" in one.title
    assert one.code.splitlines()[2:] == [
        "decode_crop = unstarve.DecodeCrop(",
        "    size=96,",
        "    mean=(0.5, 0.4, 0.3),",
        "    exif=False,",
        ")",
        "# In __getitem__, opening the image and all its transforms become:",
        "# decode_crop(self.paths[index])",
    ]


@pytest.mark.parametrize("recipe", ["", "size=", "size=system('rm')"])
def test_no_number_is_invented_where_the_transforms_are_not_known(recipe: str) -> None:
    found = advised(decoding(DECODE, RESIZE, dataset={**PHOTOS, "recipe": recipe}))
    assert "decode-crop" not in found
    assert "the dataset.__getitem__" in found["cheaper-work"].title  # nobody changes Pillow


def test_a_folder_that_cannot_be_replaced_is_told_why() -> None:
    facts = {"module": "torchvision.datasets.folder", "like_not": "its Pad cannot be replaced: known are …"}
    d = with_forecaster(decoding(DECODE, RESIZE, dataset=facts))
    (one,) = [one for one in advise(d)[1] if one.id == "decode-crop"]
    assert one.why == "its Pad cannot be replaced"


def test_the_gain_grows_with_what_the_users_own_decoding_takes() -> None:
    def gain(*functions: FunctionCost) -> float:
        found = advised(decoding(*functions, free_s=0.01))
        speedup = found["decode-crop"].speedup
        assert speedup is not None
        assert speedup.low <= speedup.predicted <= speedup.high
        return speedup.predicted

    little = dataclasses.replace(DECODE, share=0.3)
    assert gain(little) < gain(DECODE) < gain(DECODE, RESIZE) <= gain(DECODE, RESIZE, TO_TENSOR)
    assert gain(DECODE, RESIZE, JITTER) == gain(DECODE, RESIZE)  # which stays to be done


@pytest.mark.parametrize(
    "functions",
    [
        (),
        (RESIZE, TO_TENSOR),  # of images that come decoded
        (dataclasses.replace(DECODE, share=0.15),),  # beside work of another kind
        (dataclasses.replace(DECODE, where=Cause.DISK),),
        (dataclasses.replace(DECODE, file="/home/me/data.py"),),
        (TIMED,),
    ],
)
def test_it_is_silent_where_images_are_not_the_work(functions: tuple[FunctionCost, ...]) -> None:
    assert "decode-crop" not in advised(decoding(*functions))


def test_it_is_silent_where_something_else_is_waited_for() -> None:
    assert "decode-crop" not in advised(decoding(DECODE, RESIZE, cause=Cause.REMOTE, remote_s=1.0))


SMALL = {**FOLDER, "file_bytes": 10_000}


@pytest.mark.parametrize("cause", [Cause.CPU, Cause.DISK])
def test_decoded_images_are_kept_where_they_fit(cause: Cause) -> None:
    cost = {"cpu_s": 0.3} if cause is Cause.CPU else {"cpu_s": 0.01, "disk_s": 0.3}
    source = "DataLoader(train_set)"
    given = {"dataset": SMALL, "system": {"free_bytes": 10**9}, "source": source} | cost
    one = advised(decoding(DECODE, RESIZE, cause=cause, **given))["keep-decoded"]
    assert "unstarve.ImageFolderDataset.like(train_set, cache='ram')" in one.code
    assert "second epoch" in one.note
    assert one.speedup is not None
    assert one.speedup.predicted > 1.5


@pytest.mark.parametrize("facts", [FOLDER, {**PHOTOS, "file_bytes": 10_000}])
def test_nothing_is_kept_decoded_where_its_size_or_its_transforms_are_unknown(facts: dict[str, Any]) -> None:
    assert "keep-decoded" not in advised(
        decoding(DECODE, RESIZE, dataset=facts, system={"free_bytes": 10**9})
    )


def test_decoded_images_that_do_not_fit_are_rejected() -> None:
    d = with_forecaster(decoding(DECODE, RESIZE, dataset=SMALL, system={"free_bytes": 10**7}))
    (one,) = [one for one in advise(d)[1] if one.id == "keep-decoded"]
    assert one.why == "decoded images need about 16 MB"
