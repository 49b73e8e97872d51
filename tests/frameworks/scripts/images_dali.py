"""Two classes of JPEGs: DALI reads, decodes and resizes them on the CPU."""

import sys

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy


@pipeline_def
def images(root):
    encoded, labels = fn.readers.file(file_root=root, random_shuffle=True, seed=3, name="files")
    decoded = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    resized = fn.resize(decoded, resize_x=32, resize_y=32)
    return fn.crop_mirror_normalize(resized, dtype=types.FLOAT, output_layout="CHW", std=[255.0]), labels


pipeline = images(sys.argv[1], batch_size=8, num_threads=1, device_id=None)
train_loader = DALIClassificationIterator(
    pipeline, reader_name="files", last_batch_policy=LastBatchPolicy.PARTIAL
)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
losses = []
for _epoch in range(4):
    for (batch,) in train_loader:
        loss = torch.nn.functional.cross_entropy(model(batch["data"]), batch["label"].flatten().long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    train_loader.reset()
print(len(losses), losses[-1])
