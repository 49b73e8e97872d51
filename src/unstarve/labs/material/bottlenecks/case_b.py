"""Case b. Leave it as it is."""

from case_dataset import HERE, CaseDataset, train
from torch.utils.data import DataLoader


def make_loader(folder):
    dataset = CaseDataset(folder, "b")
    return DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        collate_fn=dataset.collate,
    )


if __name__ == "__main__":
    train(make_loader(HERE))
