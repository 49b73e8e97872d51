"""A LightningModule and a LightningDataModule, as in Lightning's own examples; samples take 40 ms."""

import argparse
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteDigits(Dataset):
    def __init__(self, length, rotten=None):
        self.length, self.rotten = length, rotten

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.rotten:
            raise LookupError(f"sample {index} is rotten")
        time.sleep(0.04)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


class DigitsData(L.LightningDataModule):
    def __init__(self, rotten=None):
        super().__init__()
        self.rotten = rotten

    def train_dataloader(self):
        return DataLoader(RemoteDigits(120, self.rotten), batch_size=4, shuffle=True)

    def val_dataloader(self):
        return DataLoader(RemoteDigits(8), batch_size=4)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, batch_index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_index):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.layers(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--fail", action="store_true")
    args = parser.parse_args()
    L.seed_everything(1)
    callbacks, profiler = [], None
    if args.callback:
        from unstarve.integrations.lightning import UnstarveCallback

        callbacks = [UnstarveCallback(output="callback.unstarve")]
    if args.profiler:
        from unstarve.integrations.lightning import UnstarveProfiler

        profiler = UnstarveProfiler(dirpath=".", filename="profile")
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, callbacks=callbacks, profiler=profiler,
        logger=L.pytorch.loggers.CSVLogger("logs"), enable_progress_bar=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Classifier(), DigitsData(rotten=7 if args.fail else None))
    print("loss", trainer.callback_metrics["train_loss"].item())
