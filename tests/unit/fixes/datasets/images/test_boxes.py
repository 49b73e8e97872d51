"""The same seed cuts the same boxes as torchvision, number for number."""

from __future__ import annotations

import pytest
import torch

from torchvision_here import torchvision_here
from unstarve.fixes.datasets.images.crop_recipe import RandomBoxes, draw_cuts

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
