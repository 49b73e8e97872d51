"""What each rank of a run did: python by_rank.py slow.unstarve"""

import sys

import unstarve

for rank in unstarve.load_run(sys.argv[1]).processes:
    if rank.worker or not rank.batches:
        continue
    waits = sorted((batch.got_ns - batch.ask_ns) / 1e6 for batch in rank.batches)
    steps = [
        (after.ask_ns - before.got_ns) / 1e6
        for before, after in zip(rank.batches, rank.batches[1:], strict=False)
        if before.epoch == after.epoch
    ]
    print(f"rank {rank.rank}")
    print(f"  batches in each epoch  {[sum(b.epoch == e.epoch for b in rank.batches) for e in rank.epochs]}")
    print(f"  wait for a batch       {waits[len(waits) // 2]:.1f} ms (median)")
    print(f"  step                   {sorted(steps)[len(steps) // 2]:.1f} ms (median)")
