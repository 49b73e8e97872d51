"""What is measured, by letter."""

from __future__ import annotations

from unstarve.benchmark.entries import PartPlan
from unstarve.benchmark.parts.computing import COMPUTING
from unstarve.benchmark.parts.from_files import FROM_FILES
from unstarve.benchmark.parts.handoff import HAND_OVER
from unstarve.benchmark.parts.images import IMAGES
from unstarve.benchmark.parts.in_memory import IN_MEMORY
from unstarve.benchmark.parts.waiting import WAITING

PARTS: tuple[PartPlan, ...] = (*IN_MEMORY, *FROM_FILES, *HAND_OVER, *WAITING, *IMAGES, *COMPUTING)
