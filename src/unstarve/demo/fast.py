"""The same training with the mistakes fixed: images are prepared once, batches gathered by native code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from unstarve import CachedDataset, DataLoader
from unstarve.demo.slow import SlowImages
from unstarve.demo.task import BATCH_SIZE, train

if __name__ == "__main__":
    dataset = CachedDataset(SlowImages(Path(sys.argv[1])))
    train_loader: DataLoader[Any] = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
    train(train_loader, epochs=int(sys.argv[2]))
