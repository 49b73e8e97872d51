"""Files that are read at a cost their samples do not justify, and work that every epoch repeats."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.advise.diagnosis_facts import stock_loader
from unstarve.advise.rules.data_storage import far_files
from unstarve.checks.evidence.lost_time import LEAST_SHARE, advised, cost, lost_share, waits
from unstarve.checks.evidence.places import about
from unstarve.model import Cause, Diagnosis, Finding, Run
from unstarve.words import duration, mean_count, percent, size

_FAR_SHARE = 0.5
"""Of the opened files."""
_OPENS = 0.5
"""Opened files per sample: with so many, each sample is a file."""
_SMALL_BYTES = 1_000_000
_RESAMPLERS = {
    "torchaudio/functional": ("resample", "_apply_sinc_resample_kernel", "_get_sinc_resample_kernel"),
    "librosa/core/audio.py": ("resample",),
    "resampy/": ("resample", "resample_nu", "resample_f", "_resample_loop"),
    "soxr/": ("resample",),
    "scipy/signal/": ("resample", "resample_poly", "upfirdn"),
}
"""Functions that resample audio, by a part of their file's path."""


def reads_too_much(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Bytes that are read and thrown away; known with `--io`."""
    pattern = next((one for one in (d.io.patterns if d.io else ()) if one.id == "unused_bytes"), None)
    if pattern is None or d.io is None or not waits(d):
        return
    roles = {"worker"} if any(one.role == "worker" and one.reads for one in d.io.processes) else {"training"}
    reading_s = sum(one.seconds for one in d.io.processes if one.role in roles)
    fetching_s = sum(w.collate_ns - w.begin_ns for p in run.processes for w in p.works) / 1e9
    harm = min(reading_s / fetching_s, 1.0) * lost_share(d) if fetching_s else 0.0
    if harm < LEAST_SHARE:
        return
    yield about(
        stock_loader(d),
        "reads-too-much",
        f"{pattern.finding} Reading takes {percent(min(reading_s / fetching_s, 1.0))} of the fetching time.",
        pattern.remedy,
        harm,
    )


def network_small_files(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Samples that are small files on another machine."""
    loader, demand, share = stock_loader(d), d.demand, cost(d, Cause.DISK, Cause.REMOTE)
    if loader is None or demand is None or not demand.samples or not waits(d) or share < LEAST_SHARE:
        return
    kind, far = far_files(d)
    nbytes = loader.dataset.get("file_bytes")
    if kind is None or far < _FAR_SHARE or demand.opens < _OPENS * demand.samples:
        return
    if not isinstance(nbytes, int) or nbytes >= _SMALL_BYTES:
        return
    change = advised(d, "pack-files", "tensor-files", "local-copy")
    yield about(
        loader,
        "network-small-files",
        f"A batch opens {mean_count(round(demand.opens, 1))} files of about {size(nbytes)}, on {kind}, and "
        f"waits {duration(demand.disk_s + demand.remote_s)} for them: {percent(share)} of the time.",
        "Pack the files into one (unstarve pack), or copy them to a local disk."
        if change is None
        else f"{change.title}.",
        share,
    )


def resampling_in_getitem(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Audio that is brought to another rate for every sample."""
    found = [
        one
        for one in d.functions
        if one.where in (Cause.CPU, Cause.REMOTE, Cause.DISK)
        and any(part in one.file and one.name in names for part, names in _RESAMPLERS.items())
    ]
    share = sum(one.share for one in found)
    if not waits(d) or share * lost_share(d) < LEAST_SHARE:
        return
    library = max(found, key=lambda one: one.share).file.replace("\\", "/")
    name = next(part.split("/")[0] for part in _RESAMPLERS if part in library)
    yield about(
        stock_loader(d),
        "resampling-in-getitem",
        f"Resampling audio with {name} takes {percent(share)} of the fetching time, in every epoch.",
        "Resample the files once, before training, and read them at the rate that the model needs.",
        share * lost_share(d),
    )
