"""Rules about where samples are read from."""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import matters, stock_loader
from unstarve.advise.gain import AS_IT_IS, cheaper, enough_workers, predict
from unstarve.advise.loader_call import loader_call
from unstarve.model import Advice, Cause, Demand, Diagnosis, Scenario
from unstarve.words import duration, percent, size, workers

_OPENS = 0.5
"""Files opened per sample from which on samples are files of their own."""
_SMALL_BYTES = 1e6
_FAR = ("nfs", "cifs", "smb", "fuse", "9p", "lustre", "gpfs", "beegfs", "ceph", "gluster", "afs", "virtiofs")
"""How the kinds of file systems begin that another machine or another process serves."""
_FAR_SHARE = 0.2


def deeper_disk_queue(d: Diagnosis) -> Advice | None:
    """A disk serves several reads at once faster than one by one; each worker keeps one under way."""
    count, demand, loader = enough_workers(d), d.demand, stock_loader(d)
    if demand is None or loader is None or not demand.workers or not matters(d, Cause.DISK):
        return None
    if count is None or count <= demand.workers:
        return None
    change = {"num_workers": count}
    return Advice(
        "more-reads",
        f"Use {workers(count)}: keep more reads under way",
        f"{duration(demand.disk_s)} of a batch's {duration(demand.fetch_s)} go to storage, and "
        f"{workers(demand.workers)} "
        "can have only one read each under way",
        change,
        predict(d, Scenario(workers=count), worst=AS_IT_IS),  # a disk that is at its limit gives no more
        loader_call(loader, change),
    )


def keep_in_memory(d: Diagnosis) -> Advice | None:
    """What is read again every epoch can be read from memory if it fits."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.DISK) or not demand.disk_s:
        return None
    again = loader.epochs > 1
    each = demand.storage_bytes
    volume = "" if not each else f" ({size(each * loader.steps / max(loader.epochs, 1))} an epoch)"
    return Advice(
        "keep-in-memory",
        f"Keep the data in memory{volume}",
        f"{duration(demand.disk_s)} of a batch's {duration(demand.fetch_s)} go to storage"
        + (", in every epoch again" if again else "; later epochs read the same again"),
        {},
        predict(d, cheaper("disk", 0.1 if again else 0.5), worst=AS_IT_IS),
        "cp -r DATA /dev/shm/DATA   # if it fits, then read from there",
    )


def pack_small_files(d: Diagnosis) -> Advice | None:
    """Opening a file costs a round trip; one file of many samples needs one."""
    demand = d.demand
    if demand is None or not demand.samples or not matters(d, Cause.DISK, Cause.REMOTE):
        return None
    if demand.opens < _OPENS * demand.samples or (demand.storage_bytes or 0) > _SMALL_BYTES * demand.opens:
        return None
    stage, waited_s = _stage(demand)
    return Advice(
        "pack-files",
        "Pack the small files into a few large ones",
        f"every sample opens {demand.opens / demand.samples:.1f} files; "
        f"a batch waits {duration(waited_s)} for them",
        {},
        predict(d, cheaper(stage, 0.5), worst=AS_IT_IS, best=cheaper(stage, 0.0)),
        "rows = np.load('packed.npy', mmap_mode='r')   # all samples in one file\n"
        "sample = rows[index]                          # in __getitem__",
    )


def local_copy(d: Diagnosis) -> Advice | None:
    """A network or FUSE file system pays a round trip for what a local disk has at hand."""
    if not matters(d, Cause.DISK, Cause.REMOTE) or d.demand is None:
        return None
    opened = d.system.get("filesystems") or {}
    far = {kind: count for kind, count in opened.items() if kind.lower().startswith(_FAR)}
    total = sum(opened.values())
    if not far or sum(far.values()) < _FAR_SHARE * total:
        return None
    kind = max(far, key=lambda name: far[name])
    stage, waited_s = _stage(d.demand)
    return Advice(
        "local-copy",
        f"Copy the data from {kind} to a local disk, or read it as shards",
        f"{percent(sum(far.values()) / total)} of the opened files lie on {kind}; a batch waits "
        f"{duration(waited_s)} for them",
        {},
        predict(d, cheaper(stage, 0.3), worst=AS_IT_IS, best=cheaper(stage, 0.0)),
        "rsync -a DATA/ /local/DATA/   # once, before training",
    )


def _stage(demand: Demand) -> tuple[str, float]:
    """What reading counts as, and its seconds: files of another machine need not show up as storage."""
    return ("disk", demand.disk_s) if demand.disk_s >= demand.remote_s else ("remote", demand.remote_s)
