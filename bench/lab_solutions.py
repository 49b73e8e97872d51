"""The reference solution of every fault of every lab, a fake one each, and right answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.labs.all_labs import lab_named
from unstarve.labs.specs import basic_profiling, faster_parts, nsight, training_loop, tune
from unstarve.labs.specs.when_it_breaks import drawn_kinds
from unstarve.labs.started import Started, start

Changes = tuple[tuple[str, str], ...]

_STOCK = "DataLoader(dataset, batch_size=16, shuffle=True)"
_CACHED = "__import__('unstarve').DataLoader(__import__('unstarve').CachedDataset(dataset), {rest})"
_CASE_A = """DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        collate_fn=dataset.collate,
    )"""
_PHOTOS = "DataLoader(Photos(folder), batch_size=16, shuffle=True, num_workers=1)"
_PART = "DataLoader(dataset, batch_size=batch_size, shuffle=True)"
_MINE = "__import__('unstarve')."
_16 = "batch_size=16, shuffle=True"
_SIZE = "batch_size=batch_size, shuffle=True"
_BEFORE = f"{_MINE}DataLoader({_MINE}CachedDataset(dataset.images, transform=dataset.augment), {_SIZE})"
_SOONER = f"{_MINE}AsyncPrefetchDataset(dataset, queue_size=32, num_workers=16)"
_ALL = "Photos(folder)"
_FEW = "list(map(Photos(folder).__getitem__, range(16)))"
_KEPT = _CACHED.format(rest=_16)
_SPLIT = (
    ("LabSampler(dataset, folder)", "torch.utils.data.distributed.DistributedSampler(dataset)"),
    ("begin_lab_epoch(loader, epoch)", "loader.sampler.set_epoch(epoch)"),
    (
        "from torch.utils.data import DataLoader",
        "import torch.utils.data.distributed\nfrom torch.utils.data import DataLoader",
    ),
)
_ASK_AGAIN = """\
        while True:
            try:
                return self.server.get(index, timeout_s=0.2)
            except TimeoutError:
                pass
"""

_LAYERS: dict[str, Changes] = {
    "rank": (("projections.sort(dim=-1).values[..., -1:]", "projections.amax(dim=-1, keepdim=True)"),),
    "mix": (("(x @ self.keys) @ self.values", "x @ (self.keys @ self.values)"),),
    "gate": (
        (
            "        total = x\n        for gate in self.table:\n",
            "        total = x + x * self.table.sum(dim=0)\n",
        ),
        ("            total = torch.addcmul(total, x, gate)\n", ""),
    ),
}

SOLUTIONS: dict[str, dict[str, Changes]] = {
    "io-dataloader": {
        "cpu": ((_STOCK, _KEPT),),
        "latency": ((_STOCK, _KEPT),),
        "innocent": (),
    },
    "bottlenecks": {
        "disk": ((_CASE_A, _KEPT),),
        "cpu": ((_CASE_A, _KEPT),),
        "latency": ((_CASE_A, _KEPT),),
        "collate": ((_CASE_A, _KEPT),),
        "handoff": ((_CASE_A, _KEPT),),
    },
    "tune": {
        "latency": ((_PHOTOS, _PHOTOS.replace("=1)", "=16, persistent_workers=True)")),),
        "startup": ((_PHOTOS, _PHOTOS.replace("=1)", "=1, persistent_workers=True)")),),
        "function": ((_PHOTOS, _KEPT.replace("dataset", "Photos(folder)")),),
    },
    "basic-profiling": {
        f"{block}.{layer}": changes
        for block in ("early", "middle", "late")
        for layer, changes in _LAYERS.items()
    },
    "training-loop": {
        "data": (
            ("features = [sum(values) / len(values) for values in self.readings[index].tolist()]", "pass"),
            ("torch.tensor(features)", "self.readings[index].mean(dim=1)"),
        ),
        "forward": (
            (
                'fixed("values", size, WIDTH))',
                'fixed("values", size, WIDTH))\n        self.both = (self.keys @ self.values).to(DEVICE)',
            ),
            ("(x.detach() @ self.keys) @ self.values", "x.detach() @ self.both"),
        ),
        "backward": (
            (
                "        for gate in gates:\n            total = torch.addcmul(total, gradient, gate)\n",
                "        total = gradient * gates.sum(dim=0)\n",
            ),
        ),
        "optimizer": (
            ("                for row, gradient in zip(parameter, parameter.grad, strict=True):\n", ""),
            (
                '                    row.sub_(gradient, alpha=group["rate"])',
                '                parameter.sub_(parameter.grad, alpha=group["rate"])',
            ),
        ),
    },
    "memory-profiling": {
        "losses": (("self.losses.add(self.loss(batch))", "self.losses.add(self.loss(batch).item())"),),
        "batches": (
            ("RecentBatches(folder)", "__import__('collections').deque(maxlen=2)"),
            ("self.recent.add", "self.recent.append"),
        ),
        "cache": (
            ("CachingDataset(folder)", "unstarve.CachedDataset(SampleDataset(folder))"),
            ("import CachingDataset", "import SampleDataset"),
        ),
        "none": (),
    },
    "trace-export": {"": ()},
    "nsight": dict.fromkeys(nsight.BOTTLENECKS, ()),
    "faster-parts": {
        "decoded": ((_PART, _CACHED.format(rest=_SIZE)),),
        "augmented": ((_PART, _BEFORE),),
        "rows": ((_PART, f"{_MINE}DataLoader(dataset, {_SIZE})"),),
        "server": ((_PART, f"DataLoader({_SOONER}, {_SIZE})"),),
        "tensors": ((_PART, f"{_MINE}DataLoader({_MINE}TensorFileDataset(dataset.paths), {_SIZE})"),),
    },
    "many-ranks": {
        "ranks-not-split": _SPLIT,
        "set-epoch-missed": _SPLIT,
        "uneven-ranks": _SPLIT,
        "straggler": _SPLIT,
        "none": (),
    },
    "when-it-breaks": {
        "fork-after-threads": (("self.reader.submit(lambda: SAMPLES).result()", "SAMPLES"),),
        "worker-timeout": (("        return self.server.get(index)\n", _ASK_AGAIN),),
        "out-of-memory": (("np.load(self.path)", 'np.load(self.path, mmap_mode="r")'),),
        "growing-cache": (("self.used[index, self.reads] = ", ""),),
        "kept-batches": (("append(batch[0])", "append(batch[0].clone())"),),
        "shared-memory": ((', "prefetch_factor": 8', ""),),
        "workers-each-epoch": (("num_workers=2)", "num_workers=2, persistent_workers=True)"),),
        "none": (),
    },
}
"""By lab and fault: what to replace in the learner's file, and by what."""

FAKES: dict[str, Changes] = {
    "io-dataloader": (
        (_STOCK, _STOCK.replace("dataset,", "__import__('torch').utils.data.Subset(dataset, range(16)),")),
    ),
    "bottlenecks": (
        (_CASE_A, _STOCK.replace("dataset,", "__import__('torch').utils.data.Subset(dataset, range(16)),")),
    ),
    "tune": ((_PHOTOS, _PHOTOS.replace(_ALL, _FEW)),),
    "basic-profiling": (("        return x\n\n\ndef weights", "        return x + 0.01\n\n\ndef weights"),),
    "training-loop": (("            optimizer.step()\n", ""),),
    "memory-profiling": (("self.losses.add(self.loss(batch))", "pass"),),
    "many-ranks": ((*_SPLIT[:1], *_SPLIT[2:])),
}
"""By lab: changes that make it faster or smaller, and leave something out."""


def draws(name: str, seed: int) -> tuple[str, ...]:
    """What this seed draws: one fault, or one for each part of the lab."""
    if name == "faster-parts":
        return tuple(kind.name for kind in faster_parts.kinds_of(seed).values())
    if name == "when-it-breaks":
        return tuple(drawn_kinds(seed).values())
    if name == "nsight":
        return (nsight.bottleneck_of(seed),)
    fault = lab_named(name).fault(seed)
    return ("" if fault is None else fault.name,)


def seed_of(name: str, fault: str) -> int:
    """A seed that draws this fault."""
    return next(seed for seed in range(10_000) if fault in draws(name, seed))


def begin(name: str, fault: str, folder: Path) -> Started:
    """Start the lab with this fault, and commit the right verdict."""
    started = start(name, folder, seed=seed_of(name, fault))
    if not started.lab.faults:
        return started
    verdict = " ".join(one.verdict for one in started.lab.drawn(started.seed))
    if started.lab.cases:
        started = started.predict(verdict)
    return started.commit(verdict)


def change(file: Path, changes: Changes) -> None:
    """Replace texts in a file, each of which has to be there."""
    text = file.read_text("utf-8")
    for old, new in changes:
        assert old in text, f"{file} has no {old}"
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


def solve(started: Started) -> None:
    """Change the learner's files as the worked analysis does."""
    name, folder, solutions = started.lab.name, started.folder, SOLUTIONS[started.lab.name]
    drawn = draws(name, started.seed)
    if name == "when-it-breaks":
        for script, fault in zip(("a.py", "b.py", "c.py", "d.py"), drawn, strict=True):
            change(folder / script, solutions[fault])
    elif name == "faster-parts":
        file = folder / "fast_dataloader.py"
        parts = file.read_text("utf-8").split(_PART)  # the file has the slots in order
        loaders = [solutions[fault][0][1] for fault in drawn]
        file.write_text("".join(a + b for a, b in zip(parts, (*loaders, ""), strict=True)), "utf-8")
    elif started.lab.edited is not None and drawn[0] in solutions:
        change(folder / started.lab.edited, solutions[drawn[0]])


def answers(started: Started) -> dict[str, Any]:
    """Right answers, measured where they have to be."""
    lab, folder, seed = started.lab, started.folder, started.seed
    verdicts = (started.verdict or "").split()
    found: dict[str, Any] = dict(zip(lab.keys("verdict"), verdicts, strict=False))
    return found | dict(_to_questions(lab.name, folder, seed))


def _to_questions(name: str, folder: Path, seed: int) -> Iterator[tuple[str, Any]]:
    from unstarve.labs import leaks, parts_direct, ranks, traced

    if name == "tune":
        baseline, forecast = tune._steps_and_forecast(folder, 1)
        yield from {
            "forecast_4": round(forecast, 2),
            "measured_4": round(tune._steps_and_forecast(folder, 4)[0] / baseline, 2),
            "hot_function": tune.hot_function(seed),
        }.items()
    elif name == "basic-profiling":
        shapes = basic_profiling._costly_shapes(folder, seed)
        used = basic_profiling._profiled(folder, seed).operators
        shape = next(iter(shapes))
        yield from {
            "operator": max(used, key=lambda use: use.self_s).name,
            "shape": str(list(shape)),
            "calls": shapes[shape],
        }.items()
    elif name == "training-loop":
        profiled = training_loop._profiled(folder, seed)
        spent = {phase.name: phase.seconds for phase in profiled.phases}
        drawn = draws(name, seed)[0]
        mixed = training_loop._mixed(folder, seed).mean
        yield from {
            "share": round(100 * spent[drawn] / sum(spent.values())),
            "calls": max(use.calls for use in profiled.operators) / training_loop._ACTIVE,
            "mixed": "faster" if mixed > 1.1 else "slower" if mixed < 1 / 1.1 else "same",
            "tensorboard": "tensorboard-slow",
        }.items()
    elif name == "memory-profiling":
        draw = leaks.drawn(folder)
        step_bytes = memory_of_a_sample(draw)
        yield from {
            "kept_mb": draw.kept_bytes / 1e6,
            "batch_size": int(0.8 * draw.limit_bytes / step_bytes),
        }.items()
    elif name == "trace-export":
        drawn_trace = traced.drawn(seed)
        (folder / "report.md").write_text(f"worker {drawn_trace.late_worker}: {drawn_trace.pause_name}\n")
        yield from {
            "late_worker": drawn_trace.late_worker,
            "pause_batch": drawn_trace.pause_step,
            "pause_name": drawn_trace.pause_name,
            "pause_ms": 1000 * drawn_trace.pause_s,
            "largest_phase": drawn_trace.largest_phase,
            "repaired": drawn_trace.repaired,
            "report": "report.md",
        }.items()
    elif name == "nsight":
        truth = nsight.truth(seed)
        yield from {
            "fork_option": nsight.FORK_OPTION,
            "bottleneck": truth.bottleneck,
            "kernel_percent": 100 * truth.kernel_share,
            "copy_gb_per_s": truth.copy_gb_s,
            "kernels_per_step": truth.kernels_per_step,
            "workers": truth.workers,
            "speedup": truth.speedup,
        }.items()
    elif name == "faster-parts":
        for slot, kind in zip("abc", draws(name, seed), strict=True):
            yield f"part_{slot}", faster_parts.RIGHT[kind]
        for state in parts_direct.STATES:
            found = parts_direct.direct_speedup(folder, state)
            if isinstance(found, str):
                yield f"direct_{state}", "impossible"
            else:
                mean = found.mean
                yield f"direct_{state}", "faster" if mean > 1.1 else "slower" if mean < 0.9 else "same"
    elif name == "many-ranks":
        slow = ranks.slow_rank(folder)
        yield "slow_rank", "none" if slow is None else slow
    elif name == "when-it-breaks":
        yield "causes", list(draws(name, seed))


def memory_of_a_sample(draw: Any) -> int:
    """Bytes that a step needs for each sample: two wide activations and a gradient."""
    return 4 * 3 * int(draw.wide)


__all__ = ["FAKES", "SOLUTIONS", "answers", "begin", "change", "draws", "seed_of", "solve"]
