"""The closed lists: where time can go, and how well training is fed."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Where time can go: the closed list that code, JSON, pages and docs share."""

    COMPUTE = "compute"
    HOST = "host"
    DISK = "disk"
    REMOTE = "remote"
    CPU = "cpu"
    COLLATE = "collate"
    HANDOFF = "handoff"
    PIN = "pin"
    COPY = "copy"
    SAMPLER = "sampler"
    STARTUP = "startup"
    ORDER = "order"
    CONTENTION = "contention"
    UNKNOWN = "unknown"


class State(StrEnum):
    """How well training is supplied with data."""

    STARVED = "starved"
    TIGHT = "tight"
    FED = "fed"
    INCONCLUSIVE = "inconclusive"


class Role(StrEnum):
    """What a loader is iterated for."""

    TRAIN = "train"
    VALIDATION = "validation"
    """Without gradients, or without a backward pass while another loader's steps run one."""
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """Whether a batch was loaded or replayed from memory (`unstarve ideal`)."""

    REAL = "real"
    REPLAY = "replay"
