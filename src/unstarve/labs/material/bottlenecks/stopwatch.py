"""Time the parts of a batch, without workers: python stopwatch.py a|b|c"""

import importlib
import sys
import time

from case_dataset import HERE

BATCHES = 4


def tensors(batch):
    return sum(map(tensors, batch)) if isinstance(batch, list) else 1


def timed(call):
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


if len(sys.argv) != 2 or sys.argv[1] not in ("a", "b", "c"):
    sys.exit("usage: python stopwatch.py a|b|c")
loader = importlib.import_module(f"case_{sys.argv[1]}").make_loader(HERE)
dataset, size = loader.dataset, loader.batch_size
loader.collate_fn([dataset[index] for index in range(size)])  # warm up
rows = []
for number in range(BATCHES):
    indices = range(number * size, (number + 1) * size)
    samples, *fetch = timed(lambda indices=indices: [dataset[index] for index in indices])
    batch, *collate = timed(lambda samples=samples: loader.collate_fn(samples))
    rows.append((*fetch, *collate))
fetch_ms, fetch_cpu_ms, collate_ms, collate_cpu_ms = (
    sorted(column)[BATCHES // 2] for column in zip(*rows, strict=True)
)
print(f"fetching a batch   {fetch_ms:6.1f} ms, of which {fetch_cpu_ms:6.1f} ms of CPU time")
print(f"collating it       {collate_ms:6.1f} ms, of which {collate_cpu_ms:6.1f} ms of CPU time")
print(f"tensors in it      {tensors(batch):6}")
print(f"a step should take {dataset.workload.step_ms():6.1f} ms")
