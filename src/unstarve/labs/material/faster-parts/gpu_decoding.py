"""JPEGs decoded on the GPU, if there is one and it is faster, or on the CPU. Needs Pillow to draw them."""

import sys
import time

import numpy as np
import torch
from workloads import HERE

from unstarve import DataLoader, ImageFolderDataset, to_device

try:
    from PIL import Image
except ImportError:
    sys.exit("Pillow is not installed: read gpu_decoding.py instead of running it")

FOLDER = HERE / "data" / "jpegs"
BATCH, FILES = 64, 256

for number in range(FILES):
    pixels = np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)
    place = FOLDER / f"class{number % 2}"
    place.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((500, 375)).save(place / f"{number:03}.jpg", quality=90)

dataset = ImageFolderDataset(FOLDER, size=224, decode="auto")  # before anything else uses the GPU
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2)
device = "cuda" if torch.cuda.is_available() else "cpu"
for epoch in range(3):
    began = time.perf_counter()
    for images, _ in to_device(loader, device):
        assert images.shape[1:] == (3, 224, 224)
        assert images.device.type == device
    print(f"epoch {epoch + 1}  {FILES / (time.perf_counter() - began):8.0f} images/s")
print("decoded on", dataset.decoder)
