"""An object that stands in front of a loader and behaves like it."""

from __future__ import annotations

from typing import Any

from unstarve.errors import UsageError


class LoaderProxy:
    """Reads and sets attributes on the wrapped loader; ``isinstance(…, DataLoader)`` holds if that is one.

    A subclass keeps its own attributes in ``vars(self)``, `dataloader` among them. They cannot be set later.
    """

    dataloader: Any

    def __len__(self) -> int:
        """The loader's length; its TypeError if it has none."""
        return len(self.dataloader)

    def __bool__(self) -> bool:
        return bool(self.dataloader)

    @property  # type: ignore[misc]  # isinstance() believes __class__; type() still tells the truth
    def __class__(self) -> type:
        return type(self.dataloader) if "dataloader" in vars(self) else type(self)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for dunders: the loader's own would leave the proxy out.
        if name.startswith("__") or "dataloader" not in vars(self):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.dataloader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or hasattr(type(self), name):
            raise UsageError(f"{name} of a {type(self).__name__} cannot be changed; create a new one")
        setattr(self.dataloader, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.dataloader)})


def check_loader(loader: Any) -> None:
    """Raise a `UsageError` for an object that cannot be iterated over."""
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise UsageError(f"a loader must be iterable, got {loader!r}")
