"""The random numbers that a loader's batches depend on, as plain values that any checkpoint can hold.

The process has three generators that everyone draws from: torch's, numpy's and Python's. The loader and its
samplers may have their own.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import random
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from unstarve.fixes.loader.resume.protocol import is_stateful, samplers_of

RandomState = dict[str, Any]

_MT19937_BYTES = 625 * 4
"""Words and position, as numpy has them in memory."""


def process_state() -> RandomState:
    """Return the state of the process's three generators."""
    return {key: read() for key, read in _READ.items()}


class ProcessStreams:
    """The process's three generators, read after every batch: what was not drawn from costs little."""

    def __init__(self) -> None:
        self._marks: dict[str, Any] = {}
        self._state: RandomState = {}
        self._pythons: Any = getattr(random.getstate, "__self__", None)
        self._python_address = _python_address(self._pythons)

    def read(self) -> RandomState:
        """Return the same as `process_state`; the very object of last time if nothing was drawn since."""
        marks = {
            "torch": torch.get_rng_state().numpy().tobytes(),
            "numpy": self._numpy_mark(),
            "python": self._python_mark(),
        }
        moved = {key: read() for key, read in _READ.items() if marks[key] != self._marks.get(key)}
        if moved:
            self._marks, self._state = marks, {**self._state, **moved}
        return self._state

    def _python_mark(self) -> Any:
        """Return something that differs after every draw; Python's own way to ask makes 625 numbers."""
        if self._python_address is None:
            return random.getstate()
        return ctypes.string_at(self._python_address, _MT19937_BYTES), self._pythons.gauss_next

    def _numpy_mark(self) -> Any:
        """Return something that differs after every draw; numpy's own way to ask takes ten times as long."""
        last = self._state.get("numpy")
        has_spare_number = last is not None and last[2]  # drawing it moves nothing else
        generator = _numpy_generator()
        if has_spare_number or not isinstance(generator, np.random.MT19937):
            return _numpy_state()
        return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)


def set_process_state(state: RandomState) -> None:
    """Set the process's three generators; those without a state (None) stay as they are."""
    set_torch_state(None, state["torch"])
    if state["numpy"] is not None:
        key, position, has_gauss, gauss = state["numpy"]
        words = np.frombuffer(base64.b64decode(key), np.uint32)
        np.random.set_state(("MT19937", words, position, has_gauss, gauss))
    if state["python"] is not None:
        _set_python_state(None, state["python"])


def own_generators(loader: Any) -> dict[str, Any]:
    """Return the generators of the loader and its samplers, by name, each once."""
    return _own_generators(loader, samplers_of(loader))


def _own_generators(loader: Any, samplers: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[int, tuple[str, Any]] = {}
    if loader.generator is not None:
        found[id(loader.generator)] = ("generator", loader.generator)
    for name, sampler in samplers:
        if is_stateful(sampler):
            continue  # it saves its generators itself
        for key, value in getattr(sampler, "__dict__", {}).items():
            if _kind_of(value) is not None:
                found.setdefault(id(value), (f"{name}.{key}", value))
    return dict(found.values())


def loader_state(loader: Any) -> RandomState:
    """Return the states of the process's generators and of the loader's own."""
    own = {name: _get(generator) for name, generator in own_generators(loader).items()}
    return {"process": process_state(), "own": own}


def index_state(loader: Any, samplers: Iterable[tuple[str, Any]]) -> Callable[[], RandomState]:
    """Note what the indices of an epoch that begins now depend on; call the result to get it as a state.

    `samplers` are the loader's.

    That is the same as `loader_state`, but for torch's own samplers the generators of numpy and Python have
    no state: only torch's are drawn from, and reading the others takes longer than beginning an epoch.
    """
    # An IterableDataset's samples may be made again, not only its indices.
    if isinstance(loader.dataset, IterableDataset) or any(type(one) not in _TORCHS for _, one in samplers):
        state = loader_state(loader)
        return lambda: state
    words = torch.get_rng_state()
    own = {name: _get(generator) for name, generator in _own_generators(loader, samplers).items()}
    return lambda: {"process": {"torch": _words_text(words), "numpy": None, "python": None}, "own": own}


_TORCHS = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    BatchSampler,
    DistributedSampler,
)


def set_loader_state(loader: Any, state: RandomState) -> None:
    """Set the process's generators and those of the loader's own that have a state under their name."""
    set_process_state(state["process"])
    for name, generator in own_generators(loader).items():
        if name in state["own"]:
            _set(generator, state["own"][name])


class Rewound:
    """A block in which all generators are in an earlier state, until its end or a call of `end`.

    Then they are as they were before it.
    """

    def __init__(self, loader: Any, state: RandomState) -> None:
        self._loader = loader
        self._state = state
        self._now: RandomState | None = None

    def __enter__(self) -> Self:
        self._now = loader_state(self._loader)
        set_loader_state(self._loader, self._state)
        return self

    def end(self) -> None:
        """Return to the present; calling it again changes nothing."""
        now, self._now = self._now, None
        if now is not None:
            set_loader_state(self._loader, now)

    def __exit__(self, *_: object) -> None:
        self.end()


def _text(words: bytes) -> str:
    """Return the bytes in a form that every way of saving a checkpoint accepts, JSON included."""
    return base64.b64encode(words).decode()


def torch_state(generator: torch.Generator | None) -> str:
    """Return the generator's state; None: the process's own."""
    return _words_text(torch.get_rng_state() if generator is None else generator.get_state())


def _words_text(words: torch.Tensor) -> str:
    return _text(words.numpy().tobytes())


def set_torch_state(generator: torch.Generator | None, state: str) -> None:
    """Set the generator's state; None: the process's own."""
    words = torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8)
    torch.set_rng_state(words) if generator is None else generator.set_state(words)


def _numpy_generator() -> Any:
    """Return what numpy's functions draw from; None if this version of numpy does not say."""
    get: Callable[[], Any] | None = getattr(np.random, "get_bit_generator", None)
    return None if get is None else get()


def _numpy_state() -> tuple[str, int, int, float] | None:
    state: Any = np.random.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":  # someone has exchanged it
        return None
    key = _text(state["state"]["key"].astype(np.uint32).tobytes())
    return key, int(state["state"]["pos"]), int(state["has_gauss"]), float(state["gauss"])


def _python_state(generator: random.Random | None) -> tuple[int, str, float | None]:
    version, words, gauss = (generator or random).getstate()
    return version, _text(np.array(words, np.uint32).tobytes()), gauss


def _python_address(generator: Any) -> int | None:
    """Return where CPython keeps position and words of this generator; None: it is not found there."""
    if type(generator) is not random.Random:
        return None
    head_bytes: int = object.__basicsize__
    if random.Random.__mro__[1].__basicsize__ < head_bytes + _MT19937_BYTES:
        return None
    address = id(generator) + head_bytes
    *words, position = generator.getstate()[1]
    expected = np.array([position, *words], np.uint32).tobytes()
    return address if ctypes.string_at(address, _MT19937_BYTES) == expected else None


def _set_python_state(generator: random.Random | None, state: tuple[int, str, float | None]) -> None:
    version, text, gauss = state
    words = np.frombuffer(base64.b64decode(text), np.uint32)
    (generator or random).setstate((version, tuple(words.tolist()), gauss))


_READ: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch_state(None),
    "numpy": _numpy_state,
    "python": lambda: _python_state(None),
}


def _bit_state(generator: Any) -> Any:
    return _plain(generator.bit_generator.state)


def _set_bit_state(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _legacy_state(generator: np.random.RandomState) -> Any:
    return _plain(generator.get_state(legacy=False))


def _set_legacy_state(generator: np.random.RandomState, state: Any) -> None:
    generator.set_state(state)


def _plain(state: Any) -> Any:
    """Replace arrays by lists, which every way of saving a checkpoint accepts."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, (np.ndarray, np.generic)) else state


_KINDS: dict[type[Any], tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    torch.Generator: (torch_state, set_torch_state),
    random.Random: (_python_state, _set_python_state),
    np.random.Generator: (_bit_state, _set_bit_state),
    np.random.RandomState: (_legacy_state, _set_legacy_state),
}


def _kind_of(value: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]] | None:
    return None if type(value) in _PLAIN else _kind_of_class(type(value))  # type: ignore[arg-type] # a class is hashable


_PLAIN = frozenset({int, bool, float, str, type(None), list, tuple, range})
"""What most attributes of samplers are."""


@functools.cache
def _kind_of_class(cls: type[Any]) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]] | None:
    return next((kind for base, kind in _KINDS.items() if issubclass(cls, base)), None)


def _get(generator: Any) -> Any:
    kind = _kind_of(generator)
    return None if kind is None else kind[0](generator)


def _set(generator: Any, state: Any) -> None:
    kind = _kind_of(generator)
    if kind is not None and state is not None:
        kind[1](generator, state)
