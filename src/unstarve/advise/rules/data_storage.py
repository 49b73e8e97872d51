"""Rules about the storage that samples are read from."""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import matters, stock_loader
from unstarve.advise.gain import UNCHANGED, cheaper, enough_workers
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, Demand, Diagnosis, Scenario
from unstarve.words import duration, percent, size, workers

_OPENS = 0.5
"""From this many opened files per sample, assume that each sample is a file."""
_SMALL_BYTES = 1e6
_FAR = ("nfs", "cifs", "smb", "fuse", "9p", "lustre", "gpfs", "beegfs", "ceph", "gluster", "afs", "virtiofs")
"""Prefixes of file systems served by another machine or process."""
_FAR_SHARE = 0.2


def deeper_disk_queue(d: Diagnosis) -> Proposal | None:
    """A disk serves several reads at once faster than one by one; each worker keeps one in flight."""
    count, demand, loader = enough_workers(d), d.demand, stock_loader(d)
    if demand is None or loader is None or not demand.workers or not matters(d, Cause.DISK):
        return None
    if count is None or count <= demand.workers:
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


def keep_in_memory(d: Diagnosis) -> Proposal | None:
    """Data that is read again every epoch can be kept in memory if it fits."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.DISK) or not demand.disk_s:
        return None
    again = loader.epochs > 1
    each = demand.storage_bytes
    volume = "" if not each else f" ({size(each * loader.steps / max(loader.epochs, 1))} per epoch)"
    return Proposal(
        "keep-in-memory",
        "data in memory",
        f"Keep the data in memory{volume}",
        _storage_share(demand) + (", in every epoch" if again else "; later epochs read the same data again"),
        Edit(before=("cp -r DATA /dev/shm/DATA   # if it fits, then read from there",)),
        cheaper("disk", 0.1 if again else 0.5),
        worst=UNCHANGED,
    )


def pack_small_files(d: Diagnosis) -> Proposal | None:
    """Opening a file costs a round trip; one file of many samples needs one."""
    demand = d.demand
    if demand is None or not demand.samples or not matters(d, Cause.DISK, Cause.REMOTE):
        return None
    if demand.opens < _OPENS * demand.samples or (demand.storage_bytes or 0) > _SMALL_BYTES * demand.opens:
        return None
    stage, waited_s = _stage(demand)
    return Proposal(
        "pack-files",
        "packed files",
        "Pack the small files into a few large ones",
        f"each sample opens {demand.opens / demand.samples:.1f} files; a batch waits "
        f"{duration(waited_s)} for them",
        Edit(
            before=(
                "rows = np.load('packed.npy', mmap_mode='r')   # all samples in one file",
                "sample = rows[index]                          # in __getitem__",
            )
        ),
        cheaper(stage, 0.5),
        worst=UNCHANGED,
        best=cheaper(stage, 0.0),
    )


def local_copy(d: Diagnosis) -> Proposal | None:
    """A network or FUSE file system needs a round trip where a local disk needs none."""
    if not matters(d, Cause.DISK, Cause.REMOTE) or d.demand is None:
        return None
    opened = d.system.get("filesystems") or {}
    far = {kind: count for kind, count in opened.items() if kind.lower().startswith(_FAR)}
    total = sum(opened.values())
    if not far or sum(far.values()) < _FAR_SHARE * total:
        return None
    kind = max(far, key=lambda name: far[name])
    stage, waited_s = _stage(d.demand)
    return Proposal(
        "local-copy",
        "a local copy",
        f"Copy the data from {kind} to a local disk, or read it as shards",
        f"{percent(sum(far.values()) / total)} of the opened files are on {kind}; a batch waits "
        f"{duration(waited_s)} for them",
        Edit(before=("rsync -a DATA/ /local/DATA/   # once, before training",)),
        cheaper(stage, 0.3),
        worst=UNCHANGED,
        best=cheaper(stage, 0.0),
    )


def _storage_share(demand: Demand) -> str:
    return (
        f"storage takes {duration(demand.disk_s)} of the {duration(demand.fetch_s)} that "
        f"fetching a batch takes"
    )


def _stage(demand: Demand) -> tuple[str, float]:
    """The stage that reading counts as, and its seconds: remote files may not show up as storage."""
    return ("disk", demand.disk_s) if demand.disk_s >= demand.remote_s else ("remote", demand.remote_s)
