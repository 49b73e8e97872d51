"""The same seed cuts the same boxes as torchvision, number for number."""

from __future__ import annotations

import pytest
import torch

from torchvision_here import torchvision_here
from unstarve.fixes.datasets.images import random_cuts
from unstarve.fixes.datasets.images.random_cuts import RandomBoxes, draw_cuts
from unstarve.native import native

SIZES = [(375, 500), (1, 1), (1, 900), (900, 3), (640, 480), (20, 21), (3, 2)] * 20


@pytest.mark.parametrize(
    ("scale", "ratio", "flip"),
    [((0.08, 1.0), (3 / 4, 4 / 3), 0.5), ((0.9, 1.0), (0.2, 5.0), 0.1), ((0.5, 0.5), (1.0, 1.0), 1.0)],
)
def test_boxes_flips_and_what_is_left_of_the_stream_are_torchvisions(
    scale: tuple[float, float], ratio: tuple[float, float], flip: float
) -> None:
    transforms = torchvision_here().transforms
    torch.manual_seed(3)
    theirs = []
    for height, width in SIZES:
        box = transforms.RandomResizedCrop.get_params(torch.empty(3, height, width), scale, ratio)
        theirs.append((tuple(box), bool(torch.rand(1) < flip)))
    theirs_next = torch.rand(1)
    torch.manual_seed(3)
    ours = draw_cuts(SIZES, RandomBoxes(scale, ratio), flip)
    assert [(cut.box and tuple(cut.box), cut.is_flipped) for cut in ours] == theirs
    assert torch.equal(torch.rand(1), theirs_next)


def test_a_generator_of_its_own_leaves_the_process_alone() -> None:
    boxes = RandomBoxes((0.08, 1.0), (3 / 4, 4 / 3))
    torch.manual_seed(7)
    as_process = draw_cuts(SIZES, boxes, 0.5)
    before = torch.get_rng_state()
    own = draw_cuts(SIZES, boxes, 0.5, torch.Generator().manual_seed(7))
    assert own == as_process
    assert torch.equal(torch.get_rng_state(), before)


def test_boxes_lie_within_their_images() -> None:
    for (height, width), cut in zip(
        SIZES, draw_cuts(SIZES, RandomBoxes((0.01, 1.0), (0.1, 9.0)), 0), strict=True
    ):
        box = cut.box
        assert box is not None
        assert box.height > 0
        assert box.width > 0
        assert 0 <= box.top <= height - box.height
        assert 0 <= box.left <= width - box.width


def test_nothing_random_draws_nothing() -> None:
    before = torch.get_rng_state()
    cuts = draw_cuts([(5, 5), (6, 6)], None, 0.0)
    assert [(cut.box, cut.is_flipped) for cut in cuts] == [(None, False)] * 2
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(native() is None, reason="the native part is not built")
@pytest.mark.parametrize("flip", [0.0, 0.3, 1.0])
def test_native_code_draws_what_torch_draws_one_by_one(flip: float) -> None:
    assert random_cuts._torch_fuses() is not None
    boxes = RandomBoxes((0.08, 1.0), (3 / 4, 4 / 3))
    for seed in range(20):
        natively, by_torch = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        sizes = [(100 + 3 * seed + at, 400 + 7 * at) for at in range(150)] + [(1, 3000), (3000, 2)]
        found = draw_cuts(sizes, boxes, flip, natively)
        assert found == random_cuts._draw_one_by_one(sizes, boxes, flip, by_torch)
        assert torch.equal(natively.get_state(), by_torch.get_state())


def test_images_whose_boxes_never_fit_are_drawn_one_by_one() -> None:
    sizes, boxes = [(1, 5000)] * 20, RandomBoxes((0.9, 1.0), (3 / 4, 4 / 3))
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    assert draw_cuts(sizes, boxes, 0.5, first) == random_cuts._draw_one_by_one(sizes, boxes, 0.5, second)
    assert torch.equal(first.get_state(), second.get_state())


def test_a_state_of_another_form_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise TypeError("incompatible function arguments")

    monkeypatch.setattr(random_cuts, "_draw_natively", refuses)
    random_cuts._torch_fuses.cache_clear()
    try:
        boxes = RandomBoxes((0.08, 1.0), (3 / 4, 4 / 3))
        own = torch.Generator().manual_seed(2)
        expected = random_cuts._draw_one_by_one(SIZES, boxes, 0.5, torch.Generator().manual_seed(2))
        assert draw_cuts(SIZES, boxes, 0.5, own) == expected
    finally:
        random_cuts._torch_fuses.cache_clear()
