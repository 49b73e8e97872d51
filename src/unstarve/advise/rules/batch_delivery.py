"""Rules about everything but samples: collating, the hand-off, pinning, copies, indices."""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import batch_bytes, matters, stock_loader
from unstarve.advise.gain import UNCHANGED, cheaper
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, Diagnosis, Scenario
from unstarve.words import duration, size

_HEAVY_BYTES_PER_S = 0.3e9
"""A faster hand-off is limited by bytes, a slower one by the number of tensors."""
_MANY_TENSORS = 8
_PACKED = (
    "def collate_fn(samples):   # one tensor instead of one per field",
    "    rows = [torch.cat([f.flatten() for f in s]) for s in samples]",
    "    return torch.stack(rows)",
)


def vectorized_collate(d: Diagnosis) -> Proposal | None:
    """Stacking samples one by one in Python costs more than indexing one array."""
    demand = d.demand
    if demand is None or not matters(d, Cause.COLLATE):
        return None
    return Proposal(
        "vectorize-collate",
        "a vectorized collate_fn",
        "Build the batch in one go: __getitems__ or a vectorized collate_fn",
        f"collating takes {duration(demand.collate_s)} of CPU time per batch, fetching "
        f"{duration(demand.fetch_s)}",
        Edit(
            before=(
                "def __getitems__(self, indices):   # in the dataset",
                "    return self.data[indices]      # one tensor operation for the batch",
                "# and in the DataLoader: collate_fn=default_convert",
            )
        ),
        cheaper("collate", 0.5),
        worst=UNCHANGED,
        best=cheaper("collate", 0.0),
    )


def lighter_batches(d: Diagnosis) -> Proposal | None:
    """Bytes are copied into shared memory by the worker and mapped by the training process."""
    demand, nbytes = d.demand, batch_bytes(d)
    if demand is None or nbytes is None or not _hands_over(d) or not _is_heavy(d):
        return None
    return Proposal(
        "fewer-bytes",
        "smaller batches",
        "Send smaller batches: uint8 or half precision, converted on the device",
        f"the hand-off of a batch of {size(nbytes)} takes {duration(demand.handoff_s)}",
        Edit(
            before=("return image_uint8                            # in __getitem__",),
            after=("x = batch.to(device).float().div_(255)        # in the training loop",),
        ),
        cheaper("handoff", 0.5),
        worst=UNCHANGED,
        best=cheaper("handoff", 0.25),
    )


def packed_fields(d: Diagnosis) -> Proposal | None:
    """Every tensor of a batch travels as its own message, with its own file descriptor."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or not _hands_over(d) or _is_heavy(d):
        return None
    if loader is not None and loader.tensors is not None and loader.tensors < _MANY_TENSORS:
        return None
    return Proposal(
        "pack-fields",
        "fewer, larger tensors",
        "Pack the many small tensors of a batch into a few",
        f"the hand-off of a batch takes {duration(demand.handoff_s)}, far more than its size explains",
        Edit(before=_PACKED),
        cheaper("handoff", 0.3),
        worst=UNCHANGED,
        best=cheaper("handoff", 0.05),
    )


def no_workers(d: Diagnosis) -> Proposal | None:
    """Batches of data that is already in memory are made faster than a worker can send them."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not _hands_over(d):
        return None
    if demand.fetch_s - demand.queued_s + demand.collate_s > demand.handoff_s:
        return None
    return Proposal(
        "no-workers",
        "no workers",
        "Use no workers: making a batch is cheaper than its hand-off",
        f"making a batch takes {duration(demand.fetch_s + demand.collate_s)}, its hand-off "
        f"{duration(demand.handoff_s)}",
        Edit({"num_workers": 0}),
        Scenario(workers=0),
        # At best, the training process reuses its memory and copies with several threads.
        best=Scenario(workers=0, left={"cpu": 0.3, "collate": 0.3}),
    )


def fewer_pinned_tensors(d: Diagnosis) -> Proposal | None:
    """The pin thread takes the interpreter lock from training once per tensor."""
    if d.demand is None or not matters(d, Cause.PIN):
        return None
    return Proposal(
        "pin-fewer-tensors",
        "fewer pinned tensors",
        "Pin fewer, larger tensors, or try pin_memory=False",
        f"pinning takes {duration(d.demand.pin_s)} per batch, in the training process",
        Edit(before=_PACKED),
        cheaper("pin", 0.5),
        worst=UNCHANGED,
        best=cheaper("pin", 0.0),
    )


def pinned_copies(d: Diagnosis) -> Proposal | None:
    """A copy from pageable memory blocks the training loop until it is done."""
    loader = stock_loader(d)
    if loader is None or not matters(d, Cause.COPY) or loader.config.get("pin_memory"):
        return None
    return Proposal(
        "pin-memory",
        "pin_memory=True",
        "Pin the batches and copy them without blocking",
        "copies to the device are on the critical path and come from pageable memory",
        Edit({"pin_memory": True}, after=("batch.to(device, non_blocking=True)",)),
        {Cause.COPY: 0.5},
        worst={},
        best={Cause.COPY: 1.0},
    )


def precomputed_indices(d: Diagnosis) -> Proposal | None:
    """The sampler runs in the training process, so all of its time is waiting."""
    demand = d.demand
    if demand is None or not matters(d, Cause.SAMPLER):
        return None
    return Proposal(
        "precompute-indices",
        "indices drawn in bulk",
        "Draw the indices in bulk, and only as many as an epoch uses",
        f"the sampler takes {duration(demand.sampler_s)} per batch, during which training waits",
        Edit(
            before=(
                "def __iter__(self):   # in the sampler; p: probability of each sample",
                "    # numpy; count: samples that an epoch uses",
                "    return iter(self.rng.choice(n, size=count, p=p).tolist())",
            )
        ),
        # From the waits: what torch draws ahead in ``iter()`` counts for the sampler, too.
        {Cause.SAMPLER: 0.9},
        worst={Cause.SAMPLER: 0.5},
        best={Cause.SAMPLER: 1.0},
    )


def _hands_over(d: Diagnosis) -> bool:
    return d.demand is not None and d.demand.workers > 0 and matters(d, Cause.HANDOFF)


def _is_heavy(d: Diagnosis) -> bool:
    nbytes = batch_bytes(d)
    if d.demand is None or nbytes is None:
        return False
    return nbytes > _HEAVY_BYTES_PER_S * d.demand.handoff_s
