"""The attribute that makes a dataset large is found without reading the dataset."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unstarve.collect.dataset_facts import dataset_facts
from unstarve.collect.dataset_weight import largest_attribute

MB = 1 << 20


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (torch.zeros(MB), 4 * MB),
        (np.zeros(MB, dtype=np.uint8), MB),
        (b"x" * MB, MB),
        ([np.zeros(1000) for _ in range(1000)], 8_000_000),
        ({n: f"/data/a path of about forty letters/{n}" for n in range(30_000)}, 4 * MB),
    ],
)
def test_the_largest_attribute_is_named_with_its_size(value: object, nbytes: int) -> None:
    name, found = largest_attribute(SimpleNamespace(paths=["a", "b"], images=value)) or ("", 0)
    assert name == "self.images"
    assert found == pytest.approx(nbytes, rel=0.5)


def test_a_small_dataset_has_none() -> None:
    assert largest_attribute(SimpleNamespace()) is None
    assert largest_attribute(SimpleNamespace(root="/data", transform=None)) is None


def test_a_dataset_whose_attributes_cannot_be_asked_loses_only_this_fact() -> None:
    class Odd:
        __slots__ = ()

        def __len__(self) -> int:
            return 3

    assert dataset_facts(Odd()) == {"module": __name__, "length": 3}
