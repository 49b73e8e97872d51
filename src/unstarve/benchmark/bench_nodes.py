"""The benchmark on every node of a cluster; each part is a task that has its node to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from unstarve.benchmark.bench_plan import BenchPlan
from unstarve.benchmark.run_benchmark import BenchWatch, chosen, run
from unstarve.errors import UsageError
from unstarve.model import Benchmark, Part


class Node(Protocol):
    """One machine."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def cpus(self) -> float: ...


class Nodes(Protocol):
    """Machines that run functions."""

    @property
    def nodes(self) -> Sequence[Node]: ...

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        where: Sequence[frozenset[str]],
        *,
        cpus: Sequence[float],
    ) -> Iterator[Any]:
        """Call a function on each item, with so many CPUs of the machine in `where`. Yield in order."""
        ...


def run_on_nodes(plan: BenchPlan, cluster: Nodes, watch: BenchWatch) -> dict[str, Benchmark]:
    """Measure on every node that has CPUs; results by its name. On Ctrl-C, return the results so far."""
    nodes = [node for node in cluster.nodes if node.cpus]
    if not nodes:
        raise UsageError("no node of the Ray cluster has CPUs for tasks")
    todo = [(part, node) for part in chosen(plan.parts) for node in nodes]
    results = cluster.map(
        _measure,
        [replace(plan, parts=(part.name,)) for part, _ in todo],
        [frozenset([node.id]) for _, node in todo],
        cpus=[node.cpus for _, node in todo],
    )
    found: dict[str, Benchmark] = {}
    try:
        for number, (part, node) in enumerate(todo, start=1):
            watch.begins(f"{part.name} on {node.name}", number, len(todo))
            result = next(results)
            before = found.get(node.name)
            found[node.name] = result if before is None else _joined(before, result)
    except KeyboardInterrupt:
        return {name: replace(result, interrupted=True) for name, result in found.items()}
    return found


def _joined(a: Benchmark, b: Benchmark) -> Benchmark:
    return replace(a, parts=(*a.parts, *b.parts), wall_s=a.wall_s + b.wall_s)


def _measure(plan: BenchPlan) -> Benchmark:
    return run(plan, _Silent())


class _Silent:
    def begins(self, what: str, part: int, parts: int) -> None:
        """Nobody is watching this node."""

    def ended(self, part: Part) -> None:
        """The result goes to the machine that asks."""
