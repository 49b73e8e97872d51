"""What the rules about samples ask of a recorded loader: whether samples stay the same, and their size."""

from __future__ import annotations

from unstarve.model import Demand, Diagnosis, LoaderSummary

_CACHE_SHARE = 0.4
"""`CachedDataset` takes at most half of the free memory; there may be a little less of it next time."""
_COPIED_PER_S = 4e9
"""Bytes that one core copies per second, at least: how long it takes to gather the rows of a batch."""
_OURS = "unstarve."
_LEAST_LEFT = 0.05


def text_fact(loader: LoaderSummary, name: str) -> str | None:
    """A fact that becomes part of code or of a command: one line, or None. Run files are untrusted."""
    found = loader.dataset.get(name)
    return found if isinstance(found, str) and found and found.isprintable() else None


def name_fact(loader: LoaderSummary, name: str) -> str | None:
    """A fact that is the name of an attribute."""
    found = loader.dataset.get(name)
    return found if isinstance(found, str) and found.isidentifier() else None


def may_be_wrapped(loader: LoaderSummary) -> bool:
    """Whether it is a map-style dataset of known length that is not one of unstarve's own."""
    facts = loader.dataset
    known = bool(facts.get("module")) and isinstance(facts.get("length"), int)
    return known and not facts.get("iterable") and not is_ours(loader)


def is_ours(loader: LoaderSummary) -> bool:
    """Whether its dataset is one of unstarve's own."""
    return str(loader.dataset.get("module", "")).startswith(_OURS)


def is_random(loader: LoaderSummary) -> bool | None:
    """Whether a sample may differ from epoch to epoch; None when that is not known."""
    facts = loader.dataset
    if facts.get("columns_in_memory"):
        return False
    if facts.get("keeps_state"):
        return True
    drew = facts.get("draws")
    return drew if isinstance(drew, bool) else None


def collates_by_default(loader: LoaderSummary) -> bool:
    """Whether batches are what `default_collate` makes of samples."""
    return (
        loader.config.get("collate_fn") == "default_collate" and loader.config.get("batch_size") is not None
    )


def takes_engine(loader: LoaderSummary) -> bool:
    """Whether an `unstarve.DataLoader` in its place stays one, and leaves out nothing.

    Accelerate creates a loader of torch from it, the Hugging Face Trainer creates its own, and a class of
    another library or of the user does more than torch's.
    """
    own = loader.maker is None or loader.source is not None
    return own and loader.kind == "DataLoader" and loader.config.get("remade_by") != "accelerate"


def uses_engine(loader: LoaderSummary) -> bool:
    """Whether it already runs on one of unstarve's engines."""
    return "engine" in loader.config


def dataset_bytes(loader: LoaderSummary) -> float | None:
    """Size of all samples as they are in a batch; None when unknown."""
    length = loader.dataset.get("length")
    if not loader.bytes or not loader.samples or not isinstance(length, int):
        return None
    return loader.bytes / loader.samples * length


def fits_into_memory(d: Diagnosis, size_bytes: float) -> bool | None:
    """Whether that much can be cached; None when the free memory is not known."""
    free = d.system.get("free_bytes")
    return size_bytes <= _CACHE_SHARE * free if isinstance(free, (int, float)) else None


def gathered_share(loader: LoaderSummary, demand: Demand) -> float:
    """Share of the time for collating that is left when a batch is one copy of rows in memory."""
    if not loader.bytes or not loader.steps or not demand.collate_s:
        return 1.0
    copying_s = loader.bytes / loader.steps / _COPIED_PER_S
    return min(max(copying_s / demand.collate_s, _LEAST_LEFT), 1.0)
