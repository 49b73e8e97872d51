"""Your version: change make_loader and begin_epoch until every rank gets the samples that it should."""

from rank_training import RankDataset, train
from torch.utils.data import DataLoader

from unstarve.labs.ranks import LabSampler, begin_lab_epoch


def make_loader(folder):
    dataset = RankDataset(folder)
    sampler = LabSampler(dataset, folder)
    return DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=1, persistent_workers=True)


def begin_epoch(loader, epoch):
    begin_lab_epoch(loader, epoch)


if __name__ == "__main__":
    train(make_loader, begin_epoch)
