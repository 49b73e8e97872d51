"""Measures both versions in turns on the same batches, and compares what they compute."""

import fast_model
import slow_model
import torch

import unstarve

torch.set_num_threads(1)
slow, fast = slow_model.make(slow_model.HERE), fast_model.make(fast_model.HERE)
print(unstarve.compare_implementations({"slow": slow, "fast": fast}, 1))
print(f"largest difference: {(slow(2) - fast(2)).abs().max().item():.1e}")
