"""What advice needs to know about a dataset, found out without reading a sample."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from unstarve.collect.dataset_weight import largest_attribute

Facts = dict[str, Any]
"""Plain values by name. A fact that is not known is missing.

``module``
    Module of the class: ``torchvision.datasets.folder``.
``length``
    Number of samples.
``columns_in_memory``
    True for a `TensorDataset`: samples are rows of tensors.
``largest_attribute``, ``largest_bytes``
    Name and approximate size of its largest attribute, from 1 MB on: ``self.images``.
"""


def dataset_facts(dataset: Any) -> Facts:
    """The facts about a dataset; empty when there is none, or when it cannot be asked."""
    if dataset is None:
        return {}
    facts: Facts = {"module": type(dataset).__module__}
    with suppress(Exception):  # an iterable dataset, or one whose length is not known yet
        facts["length"] = len(dataset)
    if type(dataset) is torch.utils.data.TensorDataset:
        facts["columns_in_memory"] = True
    with suppress(Exception):  # attributes may be anything
        largest = largest_attribute(dataset)
        if largest is not None:
            facts["largest_attribute"], facts["largest_bytes"] = largest
    return facts
