"""Stand in front of a loader and be it in all but name."""

from __future__ import annotations

from typing import Any

from unstarve.errors import UsageError


class LoaderProxy:
    """Attributes are read from and set on the wrapped loader, and ``isinstance(…, DataLoader)`` holds if it
    is one. Subclasses keep their own attributes in ``vars(self)``; those are fixed once they are made.
    """

    dataloader: Any

    def __len__(self) -> int:
        """As the loader's own, a TypeError included."""
        return len(self.dataloader)

    def __bool__(self) -> bool:
        return bool(self.dataloader)

    @property  # type: ignore[misc]  # isinstance() believes __class__; type() still tells the truth
    def __class__(self) -> type:
        return type(self.dataloader) if "dataloader" in vars(self) else type(self)

    def __getattr__(self, name: str) -> Any:
        # Protocols such as copying and pickling look for dunders: those of the loader would act on it alone.
        if name.startswith("__") or "dataloader" not in vars(self):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.dataloader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or hasattr(type(self), name):
            raise UsageError(
                f"{name} is fixed once a {type(self).__name__} is made; make another one to change it"
            )
        setattr(self.dataloader, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.dataloader)})


def check_loader(loader: Any) -> None:
    """Raise a `UsageError` for what cannot be iterated over."""
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise UsageError(f"a loader is something to iterate over, and {loader!r} is not")
