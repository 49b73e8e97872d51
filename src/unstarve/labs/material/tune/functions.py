"""The whole search in one call, without training. It also shows the functions that take the time."""

from pathlib import Path

from photos import Photos

import unstarve

print(unstarve.diagnose_dataloader(Photos(Path(__file__).parent), batch_size=16, budget_s=20))
