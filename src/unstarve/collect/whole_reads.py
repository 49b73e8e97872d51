"""A whole column or file that ``__getitem__`` reads for each sample.

Nothing is read here: the source of the method is compared with what the dataset holds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.collect.dataset_files import getitem

_LAZY_COLUMNS = 4
"""From this version of `datasets` on, ``rows["column"]`` decodes only the rows that are asked for."""
_ALL_ROWS = {"to_pandas", "to_dict", "to_list", "to_polars"}
_MATERIALIZE = {"list", "np.array", "np.asarray", "numpy.array", "numpy.asarray", "torch.tensor"}
_MAPPED = {"mmap_mode", "mmap"}
_ONCE = "open {} on first use and keep it"
_FILES = {
    "tarfile.open": f"{_ONCE}, with a dict of its members by name",
    "tarfile.TarFile": f"{_ONCE}, with a dict of its members by name",
    "zipfile.ZipFile": _ONCE,
    "np.load": 'map it with np.load({}, mmap_mode="r")',
    "numpy.load": 'map it with numpy.load({}, mmap_mode="r")',
    "torch.load": "call torch.load({}) once, in __init__",
    "pd.read_csv": "call pd.read_csv({}) once, in __init__",
    "pd.read_parquet": "call pd.read_parquet({}) once, in __init__",
    "pd.read_pickle": "call pd.read_pickle({}) once, in __init__",
}
"""Functions that read a file, or a table of contents as long as the archive; what to do instead."""


@dataclass(frozen=True, slots=True)
class WholeRead:
    """An expression of ``__getitem__`` that reads far more than one sample."""

    written: str
    """``self.rows[:]['x']``."""
    what: str
    """What it reads: ``every row of self.rows``."""
    instead: str
    """Code, or what to do in words: ``self.rows[index]['x']``."""
    is_column: bool
    """Whether it reads rows of a Hugging Face dataset."""


def whole_read(dataset: Any) -> WholeRead | None:
    """The first such expression of a map-style dataset."""
    function = getitem(dataset)
    if function is None or len(function.args.args) != 2:
        return None
    index = function.args.args[1].arg
    nodes = list(_every_time(function))
    found = [*_columns(nodes, dataset, index), *_files(nodes, dataset)]
    return found[0] if found else None


def _every_time(node: ast.AST) -> Iterator[ast.AST]:
    """What runs for each sample: neither what a condition guards nor what is kept in an attribute."""
    kept = isinstance(node, ast.Assign) and any(isinstance(one, ast.Attribute) for one in node.targets)
    if not isinstance(node, (ast.If, ast.IfExp, ast.Try)) and not kept:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _every_time(child)


def _columns(nodes: list[ast.AST], dataset: Any, index: str) -> Iterator[WholeRead]:
    """Rows of Hugging Face datasets, the outermost expression first."""
    for node in nodes:
        source = _whole_table(node, dataset)
        if source is None:
            continue
        rows, column = source
        row = f"{rows}[{index}]" + (f"[{column!r}]" if column else "")
        yield WholeRead(ast.unparse(node), f"every row of {rows}", row, is_column=True)


def _whole_table(node: ast.AST, dataset: Any) -> tuple[str, str | None] | None:
    """The dataset that an expression reads in full, and the column that it picks."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ALL_ROWS:
            return _rows(node.func.value, dataset)
        if ast.unparse(node.func) in _MATERIALIZE and len(node.args) == 1:
            return _column(node.args[0], dataset)
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Store):
        return None
    if _is_all(node.slice):  # rows[:], rows["x"][:]
        return _rows(node.value, dataset) or _column(node.value, dataset)
    if isinstance(node.slice, ast.Constant):  # rows[:]["x"]
        inner = node.value
        whole = isinstance(inner, ast.Subscript) and _is_all(inner.slice) and _rows(inner.value, dataset)
        return (whole[0], str(node.slice.value)) if whole else None
    column = _column(node.value, dataset)  # rows["x"][index]
    return column if column is not None and _reads_columns_whole() else None


def _rows(node: ast.expr, dataset: Any) -> tuple[str, None] | None:
    value = _value(node, dataset)
    is_table = type(value).__name__ == "Dataset" and type(value).__module__.startswith("datasets.")
    return (ast.unparse(node), None) if is_table else None


def _column(node: ast.expr, dataset: Any) -> tuple[str, str] | None:
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        return None
    rows = _rows(node.value, dataset)
    return (rows[0], node.slice.value) if rows and isinstance(node.slice.value, str) else None


def _files(nodes: list[ast.AST], dataset: Any) -> Iterator[WholeRead]:
    """Calls that read the same file for each sample: its path is an attribute."""
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        instead, path = _FILES.get(ast.unparse(node.func)), node.args[0]
        mapped = any(keyword.arg in _MAPPED for keyword in node.keywords)
        if instead is None or mapped or not isinstance(_value(path, dataset), (str, Path)):
            continue
        given = ast.unparse(path)
        name = Path(_value(path, dataset)).name
        yield WholeRead(ast.unparse(node), f"{name} from the start", instead.format(given), is_column=False)


def _value(node: ast.expr, dataset: Any) -> Any:
    """What ``self.name`` is; None for other code."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return getattr(dataset, "__dict__", {}).get(node.attr)
    return None


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None


def _reads_columns_whole() -> bool:
    import datasets  # the dataset is one of its own

    return int(datasets.__version__.partition(".")[0]) < _LAZY_COLUMNS
