"""An existing Ray cluster, for ``--ray ADDRESS``: functions run on its nodes, on those that hold a file.

Ray is imported when a cluster is joined. Functions must be importable, and every node needs the unstarve of
this machine; Ray itself asks for the same Ray and Python.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from unstarve import __version__
from unstarve.errors import MissingExtraError, RunFileError, UnstarveError, UsageError

T = TypeVar("T")
R = TypeVar("R")

_ANSWER_S = 3.0
"""How long a server may take to say that it is one; Ray itself would try for most of a minute."""
_CANCEL_S = 10.0
"""How long cancelled tasks may take to clean up before they are killed."""
_AHEAD = 2
"""Tasks that are under way or have results waiting, for each CPU of the cluster."""
_ATTEMPTS = {"RAY_NUM_REDIS_GET_RETRIES": "3"}
"""Of Ray's own, each of which takes a second."""
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""What a client of gRPC says first, with empty settings; the server answers with its settings."""
_HTTP2_SETTINGS = 4
_FRAME_HEADER = 9

Where = Collection[str] | None
"""Ids of the nodes that can run a task; None for any node."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster."""

    id: str
    name: str
    """Its address."""
    cpus: float


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file, and the ids of the nodes that see it."""

    path: Path
    nodes: frozenset[str]


class Cluster:
    """The nodes of a cluster that this process has joined."""

    def __init__(self, ray: Any, address: str) -> None:
        self._ray = ray
        self._address = address
        self._under_way: dict[Any, None] = {}
        self.nodes = tuple(
            Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"].get("CPU", 0.0))
            for node in sorted(ray.nodes(), key=lambda node: str(node["NodeManagerAddress"]))
            if node["Alive"]
        )
        self._able = {node.id for node in self.nodes if node.cpus >= 1}
        """Nodes with a CPU for tasks; a head often has none."""

    def on_each(self, function: Callable[..., R], *arguments: Any) -> dict[str, R]:
        """Call a function on every node; results by the node's id. Not for long work: it takes no CPU."""
        call = self._caller(function)
        asked = {node.id: call(arguments, node.id, 0.0) for node in self.nodes}
        return {name: self._result(reference) for name, reference in asked.items()}

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        where: Sequence[Where] | None = None,
        *,
        cpus: Sequence[float] | None = None,
    ) -> Iterator[R]:
        """Call a function on each item in a task on a node of `where`; yield the results in order.

        A task takes one CPU, or as many as `cpus` says; none if its nodes have no CPU for tasks. Only so many
        are under way that results do not pile up.
        """
        ahead = max(_AHEAD, int(_AHEAD * sum(node.cpus for node in self.nodes)))
        call = self._caller(function)
        turns = itertools.count()
        waiting: deque[Any] = deque()
        for number, item in enumerate(items):
            places = None if where is None else where[number]
            able = self._able if places is None else self._able & set(places)
            node = None
            if places is not None and len(places) < len(self.nodes):
                choice = sorted(able or places)
                node = choice[next(turns) % len(choice)]
            own_cpus = float(bool(able)) if cpus is None else cpus[number]
            waiting.append(call((item,), node, own_cpus))
            if len(waiting) >= ahead:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def find_runs(self, paths: Sequence[Path]) -> list[HeldFile]:
        """The nodes that see each run file; where no folder is shared, different ones may have one name.

        Raises `RunFileError` for a file that no node has.
        """
        seen: dict[tuple[Path, tuple[int, int]], set[str]] = {}
        wholes = [path.absolute() for path in paths]
        for node, stamps in self.on_each(_stamps, wholes).items():
            for path, stamp in zip(wholes, stamps, strict=True):
                if stamp is not None:
                    seen.setdefault((path, stamp), set()).add(node)
        missing = next((path for path in wholes if path not in {known for known, _ in seen}), None)
        if missing is not None:
            raise RunFileError(f"no node of the Ray cluster at {self._address} has {missing}")
        return [HeldFile(path, frozenset(nodes)) for (path, _), nodes in seen.items()]

    def reader(
        self, files: Sequence[HeldFile]
    ) -> Callable[[Callable[[Path], R], Sequence[int]], Iterator[R]]:
        """A function that calls another on the files of some numbers, where they are."""

        def read(function: Callable[[Path], R], numbers: Sequence[int]) -> Iterator[R]:
            chosen = [files[number] for number in numbers]
            return self.map(function, [one.path for one in chosen], [one.nodes for one in chosen])

        return read

    def cancel(self) -> None:
        """Cancel all tasks that are under way, and wait until they have ended."""
        for force in (False, True):
            for reference in self._under_way:
                self._ray.cancel(reference, force=force)
            if not self._under_way:
                return
            references = list(self._under_way)
            self._ray.wait(references, num_returns=len(references), timeout=_CANCEL_S, fetch_local=False)
            done, _ = self._ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
            for reference in done:
                del self._under_way[reference]

    def _caller(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that starts a task: ``call(arguments, node, cpus)``. Each process gets it once."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        box = [self._ray.put(function)]
        job = _Job(__version__, tuple(sys.path), f"{os.getpid()}-{time.time_ns()}")
        task = self._ray.remote(_call)

        def call(arguments: tuple[Any, ...], node: str | None, cpus: float) -> Any:
            strategy = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node, soft=False)
            options = task.options(num_cpus=cpus, scheduling_strategy=strategy)
            reference = options.remote(job, box, arguments)
            self._under_way[reference] = None
            return reference

        return call

    def _result(self, reference: Any) -> Any:
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UnstarveError | OSError):
                raise error.cause from None
            raise self._failure(f"{type(error.cause).__name__}: {error.cause}") from error
        except self._ray.exceptions.RayError as error:
            raise self._failure(str(error)) from error
        del self._under_way[reference]
        return result

    def _failure(self, text: str) -> UnstarveError:
        words = text.strip().partition("\n")[0]
        remedy = ""
        if "No module named" in words:
            remedy = (
                f"; install unstarve {__version__} on every node, and keep your own modules in a folder that "
                "all nodes see"
            )
        return UnstarveError(f"a task failed on the Ray cluster at {self._address}: {words}{remedy}")


@contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """Join the cluster until the block ends; tasks that are still under way then are cancelled.

    Raises `UsageError` if no cluster answers at the address, `MissingExtraError` without Ray.
    """
    for name, value in _ATTEMPTS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError(f'--ray needs Ray: pip install "unstarve[ray]" ({error})') from error
    _check_answers(address)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # whatever Ray raises: another version, another Python, a missing package
        words = " ".join(str(error).split()).partition(". ")[0]
        raise UsageError(f"cannot join the Ray cluster at {address}: {words}") from error
    try:
        cluster = Cluster(ray, address)
        try:
            yield cluster
        finally:
            cluster.cancel()
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise UsageError unless a server of gRPC answers there."""
    if address == "auto":
        return  # Ray looks for a cluster on this machine, and says at once if there is none
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(
            f"--ray takes the address of a running cluster (10.0.0.1:6379, ray://10.0.0.1:10001 or auto), "
            f"got {address!r}"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(_FRAME_HEADER)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"no Ray cluster answers at {address}: {reason}") from error
    if len(answer) < _FRAME_HEADER or answer[3] != _HTTP2_SETTINGS:
        raise UsageError(f"what answers at {address} is not a Ray cluster")


# --- on the nodes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """What the tasks of one function have in common."""

    version: str
    path: tuple[str, ...]
    """Where the machine that asks finds modules."""
    name: str


_function: tuple[str, Callable[..., Any]] | None = None
"""The function of the last task of this process, which may be large: a list of all files."""


def _call(job: _Job, box: list[Any], arguments: tuple[Any, ...]) -> Any:
    """The body of every task."""
    global _function
    import ray

    if job.version != __version__:
        raise UsageError(
            f"{socket.gethostname()} has unstarve {__version__}, but {job.version} is asking: "
            "install the same version on all nodes"
        )
    if _function is None or _function[0] != job.name:
        sys.path += [entry for entry in job.path if entry not in sys.path]
        _function = job.name, ray.get(box[0])
    return _function[1](*arguments)


def _stamps(paths: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Size and time of change of each file: the same where nodes see the same file."""
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_size, state.st_mtime_ns))
    return found
