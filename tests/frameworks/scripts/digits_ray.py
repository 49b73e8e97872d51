"""A loop for Ray Train, over a DataLoader or over Ray Data; each sample takes 5 ms to arrive."""

import sys
import time
from pathlib import Path

import numpy as np
import ray
import ray.data
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteDigits(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.005)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


def steps(batches, epochs):
    torch.manual_seed(1)
    model = ray.train.torch.prepare_model(nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for x, y in batches():
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ray.train.report({"loss": loss.item()})


def from_loader():
    train_loader = DataLoader(RemoteDigits(), batch_size=4)
    prepared = ray.train.torch.prepare_data_loader(train_loader)
    steps(lambda: prepared, epochs=1)


def from_ray_data(config):
    shard = ray.train.get_dataset_shard("train")

    def batches():
        for batch in shard.iter_torch_batches(batch_size=config["batch_size"]):
            yield batch["x"].float(), batch["y"]

    steps(batches, epochs=2)


def main():
    words = sys.argv[1:]
    if "--join" in words:
        ray.init(address=words[words.index("--join") + 1])
    else:
        ray.init(
            num_cpus=3, object_store_memory=100_000_000, include_dashboard=False, _node_ip_address="127.0.0.2"
        )
    wrap = lambda loop: loop  # noqa: E731
    if "--callback" in words:
        from unstarve.integrations.ray import recorded

        wrap = lambda loop: recorded(loop, output=str(Path("callback.unstarve").absolute()))  # noqa: E731
    settings = {
        "scaling_config": ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        "run_config": RunConfig(storage_path=str(Path("results").absolute())),
    }
    if "--data" in words:
        rows = [{"x": np.random.rand(64), "y": number % 10} for number in range(160)]
        trainer = TorchTrainer(
            wrap(from_ray_data),
            train_loop_config={"batch_size": 4},
            datasets={"train": ray.data.from_items(rows)},
            **settings,
        )
    else:
        trainer = TorchTrainer(wrap(from_loader), **settings)
    trainer.fit()


if __name__ == "__main__":
    main()
