"""Rules about the storage that samples are read from."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Any

from unstarve.advise.diagnosis_facts import batch_bytes, matters, stock_loader
from unstarve.advise.gain import UNCHANGED, cheaper, enough_workers
from unstarve.advise.proposal import Edit, Proposal, in_template
from unstarve.advise.sample_facts import (
    collates_by_default,
    fits_into_memory,
    may_be_wrapped,
    name_fact,
    text_fact,
)
from unstarve.model import Cause, Demand, Diagnosis, Scenario
from unstarve.words import duration, percent, printable, size, workers

_OPENS = 0.5
"""From this many opened files per sample, assume that each sample is a file."""
_SMALL_BYTES = 1e6
FAR = ("nfs", "cifs", "smb", "fuse", "9p", "lustre", "gpfs", "beegfs", "ceph", "gluster", "afs", "virtiofs")
"""Prefixes of file systems served by another machine or process."""
_FAR_SHARE = 0.2
FAR_TOO_MANY_ROWS = 4
"""Samples in a chunk of which one is wanted."""
CHUNK_CACHE_BYTES = 1 << 20
"""HDF5 keeps so much of an open array; a larger chunk is read again for each of its samples."""
_SHAPE = re.compile(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*")
_LOADED = 0.1
"""Share of the CPU time of fetching that is left when whole batches are read without Python."""
_READ_AROUND = 2.0
"""From this many bytes of storage per byte of a batch, the kernel reads around page faults."""
_TOGETHER = 0.5
"""Share of the waiting for storage that is left when the files of a batch are read together."""


def deeper_disk_queue(d: Diagnosis) -> Proposal | None:
    """A disk serves several reads at once faster than one by one; each worker keeps one in flight."""
    count, demand, loader = enough_workers(d), d.demand, stock_loader(d)
    if demand is None or loader is None or not demand.workers or not matters(d, Cause.DISK):
        return None
    if count is None or count <= demand.workers or "shards" in loader.dataset:  # see more_shards
        return None
    return Proposal(
        "more-reads",
        workers(count),
        f"Use {workers(count)} to keep more reads in flight",
        f"{_storage_share(demand)}, and a worker has only one read in flight",
        Edit({"num_workers": count}),
        Scenario(workers=count),
        worst=UNCHANGED,  # a disk at its limit gives no more
    )


def tensor_files(d: Diagnosis) -> Proposal | None:
    """Files that hold one sample each can be read straight into the batch, many at once."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.CPU, Cause.DISK, Cause.REMOTE):
        return None
    files, labels = name_fact(loader, "files"), name_fact(loader, "labels")
    if not files or not may_be_wrapped(loader) or not collates_by_default(loader):
        return None
    stage, _ = _stage(demand)
    given = f"{{0}}.{files}" + (f", labels={{0}}.{labels}" if labels else "")
    return Proposal(
        "tensor-files",
        "unstarve.TensorFileDataset",
        "Read the files straight into the batch: unstarve.TensorFileDataset",
        f"each sample is a {text_fact(loader, 'suffix')} file, and {text_fact(loader, 'loads')} takes "
        f"{duration(demand.fetch_s)} for those of a batch",
        Edit(dataset=f"unstarve.TensorFileDataset({given})", engine=True),
        Scenario(left={"cpu": _LOADED, stage: _TOGETHER, "collate": 0.0, "handoff": 0.0}),
        worst=Scenario(left={"cpu": 0.5}),
        best=Scenario(left={"cpu": 0.0, stage: 0.0, "collate": 0.0, "handoff": 0.0}),
    )


def pack_small_files(d: Diagnosis) -> Proposal | None:
    """Opening a file costs a round trip; one file of many samples needs one."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not demand.samples or not matters(d, Cause.DISK, Cause.REMOTE):
        return None
    if demand.opens < _OPENS * demand.samples or (demand.storage_bytes or 0) > _SMALL_BYTES * demand.opens:
        return None
    pattern = text_fact(loader, "packs_as")
    if not pattern or not may_be_wrapped(loader):
        return None
    stage, waited_s = _stage(demand)
    packed = f"{PurePath(pattern).parent.name or 'samples'}.packed"
    return Proposal(
        "pack-files",
        "unstarve.PackedDataset",
        "Pack the small files into one: unstarve.PackedDataset",
        f"each sample opens {demand.opens / demand.samples:.1f} files; a batch waits "
        f"{duration(waited_s)} for them",
        Edit(
            dataset=f"unstarve.PackedDataset({in_template(repr(packed))})",
            engine=True,
            shell=(f"unstarve pack {shlex.quote(pattern)} {shlex.quote(packed)}",),
        ),
        Scenario(left={"cpu": _LOADED, stage: _TOGETHER, "collate": 0.0, "handoff": 0.0}),
        worst=UNCHANGED,
        best=Scenario(left={"cpu": 0.0, stage: 0.0, "collate": 0.0, "handoff": 0.0}),
    )


def smaller_chunks(d: Diagnosis) -> Proposal | None:
    """HDF5 reads and decompresses a whole chunk for each sample in it that is asked for."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None:
        return None
    if not matters(d, Cause.CPU, Cause.DISK, Cause.REMOTE, Cause.CONTENTION):
        return None
    file, array = text_fact(loader, "chunk_file"), text_fact(loader, "chunk_array")
    shape, nbytes = text_fact(loader, "chunk_shape"), loader.dataset.get("chunk_bytes")
    if not file or not array or not isinstance(nbytes, int) or not _SHAPE.fullmatch(shape or ""):
        return None
    first, _, others = (shape or "").partition("x")
    rows = int(first)
    if rows < FAR_TOO_MANY_ROWS or in_order(loader.config.get("sampler"), nbytes):
        return None
    stage = max(("cpu", demand.cpu_s), _stage(demand), key=lambda one: one[1])[0]
    written = str(PurePath(file).with_suffix(f".rechunked{PurePath(file).suffix}"))
    layout = f"{array}:CHUNK=1{others and 'x'}{others}"
    packed = PurePath(file).with_suffix(".packed").name
    return Proposal(
        "smaller-chunks",
        "one sample per chunk",
        f"Write {PurePath(file).name} with one sample per chunk",
        f"a chunk of {array} holds {rows} samples ({size(nbytes)}), and HDF5 reads all of it for each one",
        Edit(shell=(f"h5repack -l {shlex.quote(layout)} {shlex.quote(file)} {shlex.quote(written)}",)),
        cheaper(stage, 0.2),
        worst=UNCHANGED,
        best=cheaper(stage, 1 / rows),
        note=f"h5repack comes with HDF5's tools; without them: unstarve pack {PurePath(file).name} {packed}.",
    )


def read_less(d: Diagnosis) -> Proposal | None:
    """A whole column or file is read for each sample: ``rows[:]["x"][i]``, ``tarfile.open(path)``."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None:
        return None
    if not matters(d, Cause.CPU, Cause.DISK, Cause.REMOTE, Cause.CONTENTION):
        return None
    names = ("whole_read", "whole_what", "whole_instead")
    written, what, instead = (text_fact(loader, name) for name in names)
    if not written or not what or not instead:
        return None
    stage = max(("cpu", demand.cpu_s), _stage(demand), key=lambda one: one[1])[0]
    owner = printable(str(loader.config.get("dataset", "the dataset")))
    return Proposal(
        "read-less",
        "reading one sample",
        f"Read one sample at a time: {written} reads {what}",
        f"fetching a batch takes {duration(demand.fetch_s)}, and each of its samples reads {what}",
        Edit(before=(f"# in {owner}.__getitem__, instead of {written}:", f"# {instead}")),
        cheaper(stage, 0.2),
        worst=UNCHANGED,
        best=cheaper(stage, 0.0),
    )


def mapped_pages(d: Diagnosis) -> Proposal | None:
    """Random page faults of a mapped file read one at a time, and the kernel reads far more around each.

    A file that fits into memory is soon in the page cache as a whole, just by that: waiting for storage is
    then over, and so is this advice. It stays where the file does not fit, and for short epochs.
    """
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.DISK, Cause.REMOTE):
        return None
    file, nbytes = text_fact(loader, "mapped_file"), loader.dataset.get("mapped_bytes")
    if not file or not isinstance(nbytes, int) or loader.config.get("sampler") == "SequentialSampler":
        return None
    read, used = demand.storage_bytes, batch_bytes(d)
    around = bool(read and used and read >= _READ_AROUND * used)
    fits = fits_into_memory(d, nbytes)
    if read and not around and not fits:  # MADV_RANDOM is set, or pages are as large as samples
        return None
    stage, waited_s = _stage(demand)
    name = PurePath(file).name
    title = f"Read {name} ({size(nbytes)}) once before training: it fits into the page cache"
    edit = Edit(shell=(f"cat {shlex.quote(file)} > /dev/null",))
    if not fits:
        title = f"Tell the kernel that {name} is read at random: MADV_RANDOM"
        hint = "# right after tokens = np.memmap(…): tokens._mmap.madvise(mmap.MADV_RANDOM)"
        edit = Edit(before=(hint,))
    why = f"samples are slices of a mapped file: a batch waits {duration(waited_s)} for page faults"
    if read and used and around:
        why += f", which read {size(read)} from storage for a batch of {size(used)}"
    return Proposal(
        "mapped-pages",
        "a file in the page cache" if fits else "MADV_RANDOM",
        title,
        why,
        edit,
        cheaper(stage, 0.1 if fits else 0.5),
        worst=UNCHANGED,
        best=cheaper(stage, 0.0 if fits else 0.1),
    )


def in_order(sampler: Any, chunk_bytes: int) -> bool:
    """Whether each chunk is read once: samples come in order, and HDF5 keeps the chunk meanwhile."""
    return sampler in (None, "SequentialSampler") and chunk_bytes <= CHUNK_CACHE_BYTES


def local_copy(d: Diagnosis) -> Proposal | None:
    """A network or FUSE file system needs a round trip where a local disk needs none."""
    loader = stock_loader(d)
    if not matters(d, Cause.DISK, Cause.REMOTE) or d.demand is None:
        return None
    kind, share = far_files(d)
    if kind is None or share < _FAR_SHARE:
        return None
    stage, waited_s = _stage(d.demand)
    root = None if loader is None else text_fact(loader, "root")
    if root:
        copy = f"/var/tmp/{PurePath(root).name or 'data'}"
        title = f"Copy the data from {kind} to a local disk: read {copy} instead of {root}"
        edit = Edit(shell=(f"cp -r {shlex.quote(root.rstrip('/') or '/')} {shlex.quote(copy)}",))
    else:
        title = f"Copy the data from {kind} to a local disk, and read it there"
        edit = Edit(before=("# Copy the data to a local disk, and give the dataset its new folder.",))
    return Proposal(
        "local-copy",
        "a local copy",
        title,
        f"{percent(share)} of the opened files are on {kind}; a batch waits {duration(waited_s)} for them",
        edit,
        cheaper(stage, 0.3),
        worst=UNCHANGED,
        best=cheaper(stage, 0.0),
    )


def far_files(d: Diagnosis) -> tuple[str | None, float]:
    """The file system of another machine that most files were opened on, and the share of all such files."""
    opened = d.system.get("filesystems") or {}
    far = {kind: count for kind, count in opened.items() if kind.lower().startswith(FAR)}
    if not far:
        return None, 0.0
    return max(far, key=lambda name: far[name]), sum(far.values()) / sum(opened.values())


def _storage_share(demand: Demand) -> str:
    return (
        f"storage takes {duration(demand.disk_s)} of the {duration(demand.fetch_s)} that "
        f"fetching a batch takes"
    )


def _stage(demand: Demand) -> tuple[str, float]:
    """The stage that reading counts as, and its seconds: remote files may not show up as storage."""
    return ("disk", demand.disk_s) if demand.disk_s >= demand.remote_s else ("remote", demand.remote_s)
