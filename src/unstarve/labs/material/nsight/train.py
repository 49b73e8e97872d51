"""A small training, for `unstarve nsys`. It uses the GPU if there is one."""

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 64, 64, generator=generator), index % 10


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
    ).to(device)
    loader = DataLoader(Images(), batch_size=32, num_workers=2, pin_memory=device.type == "cuda")
    model(torch.zeros(1, 3, 64, 64, device=device))  # sizes the last layer
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        images, labels = (one.to(device, non_blocking=True) for one in batch)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
