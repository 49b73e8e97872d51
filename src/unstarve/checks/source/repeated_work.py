"""Work that is repeated for every sample, and batches that are kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from unstarve.checks.source.project import Project, own_statements
from unstarve.checks.source.syntax import argument, written
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

_RESAMPLE = re.compile(r"torchaudio\.functional\.resample|librosa\.(core\.)?resample|resampy\.resample")
_READ_VIDEO = re.compile(r"torchvision\.io\.(video\.)?read_video")
_HUB = re.compile(r"datasets\.(load_dataset|load_from_disk)")
_LAZY_COLUMNS = 4
"""From this version of `datasets` on, ``dataset["column"]`` reads only the rows that are asked for."""


def resampling_in_getitem(project: Project) -> Iterator[Finding]:
    """Audio is resampled where samples are fetched."""
    for dataset in project.datasets:
        for method in dataset.fetching():
            for call in dataset.source.calls(_RESAMPLE, method):
                yield finding(
                    "resampling-in-getitem",
                    f"{dataset.name}.{method.name} calls {written(call.func)} for every sample, every epoch.",
                    "Resample the files once, before training, or keep the result with "
                    "unstarve.CachedDataset(dataset).",
                    file=dataset.source.path,
                    line=call.lineno,
                )


def whole_video_for_a_frame(project: Project) -> Iterator[Finding]:
    """``read_video`` without bounds, of whose frames some are picked."""
    for dataset in project.datasets:
        for method in dataset.fetching():
            for call in dataset.source.calls(_READ_VIDEO, method):
                bounded = any(argument(call, name, at) for at, name in ((1, "start_pts"), (2, "end_pts")))
                if bounded or (call.keywords and any(k.arg is None for k in call.keywords)):
                    continue
                picked = _picked(method, call)
                if picked is not None:
                    yield finding(
                        "whole-video-for-a-frame",
                        f"{dataset.name}.{method.name} decodes the whole video and keeps {written(picked)}.",
                        "Decode only the frames you need, with torchcodec.decoders.VideoDecoder(path)[i] or "
                        'read_video(path, start_pts=…, end_pts=…, pts_unit="sec").',
                        file=dataset.source.path,
                        line=call.lineno,
                    )


def column_first(project: Project) -> Iterator[Finding]:
    """``dataset["column"][i]`` of a dataset of the hub, with a version that reads the whole column for it."""
    if _installed("datasets") >= _LAZY_COLUMNS:
        return
    for source in project.sources:
        hub = {
            target.id
            for node in source.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _HUB.fullmatch(source.full_name(node.value.func))
            and argument(node.value, "split") is not None
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in source.nodes if hub else ():
            if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript)):
                continue
            column, name = node.value.slice, node.value.value
            if (
                isinstance(name, ast.Name)
                and name.id in hub
                and isinstance(column, ast.Constant)
                and isinstance(column.value, str)
                and not isinstance(node.slice, ast.Constant)
            ):
                yield finding(
                    "column-first",
                    f"{written(node)} decodes the column {column.value!r} of every row.",
                    f"{name.id}[{written(node.slice)}][{column.value!r}]",
                    file=source.path,
                    line=node.lineno,
                )


def kept_batches(project: Project) -> Iterator[Finding]:
    """Every batch of a loader with workers is appended to a list."""
    for loader in project.loaders:
        if not loader.has_workers():
            continue
        for loop in own_statements(loader.within):
            if not isinstance(loop, ast.For) or _innermost(loop.iter) != loader.name:
                continue
            batch = (
                loop.target.elts[-1]
                if isinstance(loop.target, ast.Tuple) and _enumerates(loop)
                else loop.target
            )
            if not isinstance(batch, ast.Name) or any(isinstance(n, ast.Break) for n in ast.walk(loop)):
                continue
            for node in loop.body:
                call = node.value if isinstance(node, ast.Expr) else None
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "append"
                    and len(call.args) == 1
                    and isinstance(call.args[0], ast.Name)
                    and call.args[0].id == batch.id
                ):
                    kept = written(call.func.value)
                    yield finding(
                        "kept-batches",
                        f"{kept} keeps every batch of {loader.name}, and with it the shared memory and the "
                        "file descriptors of its tensors.",
                        f"{kept}.append(copy.deepcopy({batch.id}))",
                        file=loader.source.path,
                        line=call.lineno,
                    )


def _picked(method: ast.AST, call: ast.Call) -> ast.AST | None:
    """Where a frame, or a few, of the result of `call` are picked."""
    frames = None
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and node.value is call and isinstance(node.targets[0], ast.Tuple):
            first = node.targets[0].elts[0]
            frames = first.id if isinstance(first, ast.Name) else None
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Subscript)
            and node.value.value is call
        ):
            return node
    for node in ast.walk(method):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == frames:
            return node
    return None


def _innermost(node: ast.expr) -> str:
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return ast.unparse(node)


def _enumerates(loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "enumerate"


def _installed(package: str) -> int:
    """The major version of a package; 0 when it is not installed."""
    try:
        return int(version(package).partition(".")[0])
    except (PackageNotFoundError, ValueError):
        return 0
