"""Usage: python profile_training.py slow|fast

Profiles a few steps twice: with unstarve.profile, which prints the phases, and with torch.profiler alone,
which leaves a trace for TensorBoard in the folder tensorboard-slow or tensorboard-fast.
"""

import importlib
import sys

import torch

import unstarve

SCHEDULE = {"wait": 5, "warmup": 2, "active": 6, "repeat": 1}

if len(sys.argv) != 2 or sys.argv[1] not in ("slow", "fast"):
    sys.exit(__doc__)
version = importlib.import_module(f"{sys.argv[1]}_training")
torch.set_num_threads(1)

with unstarve.profile(**SCHEDULE) as profiled:
    version.train(version.HERE, after_step=profiled.step)
print(profiled)

with torch.profiler.profile(
    schedule=torch.profiler.schedule(**SCHEDULE),
    on_trace_ready=torch.profiler.tensorboard_trace_handler(f"tensorboard-{sys.argv[1]}"),
    record_shapes=True,
) as profiler:
    version.train(version.HERE, after_step=profiler.step)
