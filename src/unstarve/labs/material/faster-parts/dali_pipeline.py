"""Files of numbers, read by NVIDIA's DALI and by unstarve. Needs nvidia-dali."""

import sys
import time

import numpy as np
from workloads import HERE

import unstarve

try:
    from nvidia.dali import fn, pipeline_def
except ImportError:
    sys.exit("nvidia-dali is not installed: read dali_pipeline.py instead of running it")

FOLDER = HERE / "data" / "dali"
BATCH, FILES = 64, 1024


@pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
def arrays():
    return fn.readers.numpy(file_root=str(FOLDER), file_filter="*.npy", random_shuffle=True, name="reader")


FOLDER.mkdir(parents=True, exist_ok=True)
for number in range(FILES):
    np.save(FOLDER / f"{number:04}.npy", np.full((64, 64), number, np.float32))

pipeline = arrays()
pipeline.build()
began = time.perf_counter()
for _ in range(FILES // BATCH):
    pipeline.run()
print(f"DALI      {FILES / (time.perf_counter() - began):8.0f} samples/s")

loader = unstarve.DataLoader(unstarve.TensorFileDataset(FOLDER), batch_size=BATCH, shuffle=True)
began = time.perf_counter()
for _ in loader:
    pass
print(f"unstarve  {FILES / (time.perf_counter() - began):8.0f} samples/s")
