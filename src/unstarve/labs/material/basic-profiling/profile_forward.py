"""Usage: python profile_forward.py slow|fast

Profiles the forward pass twice: with torch.profiler alone, whose table also has the labels, and with
unstarve.profile, which reads the same events as a report.
"""

import importlib
import sys

import torch
from torch.profiler import ProfilerActivity

import unstarve

WAIT, WARMUP, ACTIVE = 2, 1, 5

if len(sys.argv) != 2 or sys.argv[1] not in ("slow", "fast"):
    sys.exit(__doc__)
version = importlib.import_module(f"{sys.argv[1]}_model")
torch.set_num_threads(1)
forward = version.make(version.HERE)

activities = [ProfilerActivity.CPU]
if torch.cuda.is_available():
    activities.append(ProfilerActivity.CUDA)
schedule = torch.profiler.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE)
with torch.profiler.profile(activities=activities, schedule=schedule, record_shapes=True) as profiler:
    for number in range(WAIT + WARMUP + ACTIVE):
        forward(number)
        profiler.step()
order = "device_time_total" if torch.cuda.is_available() else "cpu_time_total"
print(profiler.key_averages().table(sort_by=order, row_limit=12, max_name_column_width=32))

with unstarve.profile(wait=WAIT, warmup=WARMUP, active=ACTIVE) as profiled:
    for number in range(WAIT + WARMUP + ACTIVE):
        forward(number)
        profiled.step()
print(profiled)
