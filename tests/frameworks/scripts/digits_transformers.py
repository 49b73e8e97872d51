"""A Trainer and its TrainingArguments, as in Hugging Face's own examples; samples take 40 ms."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


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
        return {"x": torch.randn(64, generator=generator), "labels": index % 10}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--fail", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    callbacks = []
    if args.callback:
        from unstarve.integrations.transformers import UnstarveCallback

        callbacks = [UnstarveCallback(output="callback.unstarve")]
    trainer = Trainer(
        model=Classifier(),
        args=TrainingArguments(
            output_dir="out", num_train_epochs=1, per_device_train_batch_size=4, eval_strategy="epoch",
            save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=1,
        ),
        train_dataset=RemoteDigits(120, rotten=7 if args.fail else None),
        eval_dataset=RemoteDigits(8),
        callbacks=callbacks,
    )  # fmt: skip
    result = trainer.train()
    print("loss", result.training_loss)
