"""What workers cannot be started with, or must not share with the training process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unstarve.checks.source.project import LoaderCall, Project, own_statements
from unstarve.checks.source.syntax import Function, Source, assigned_attributes, uses_attribute, written
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

_HANDLE = re.compile(
    r"h5py\.File|lmdb\.open|lmdb\.Environment|sqlite3\.connect|open|io\.open|zipfile\.ZipFile|tarfile\.open"
    r"|cv2\.VideoCapture|decord\.VideoReader|av\.open|torchcodec\.decoders\.VideoDecoder"
)
_START = re.compile(r"(torch\.)?multiprocessing\.set_start_method|multiprocessing\.context\.set_start_method")
_CONTEXT = re.compile(r"(torch\.)?multiprocessing\.get_context")
_PICKLING = ("spawn", "forkserver")
_OPENCV = re.compile(r"cv2\.\w+")


def handle_before_fork(project: Project) -> Iterator[Finding]:
    """A file or connection opened in ``__init__`` and used where samples are fetched."""
    for dataset in project.datasets:
        loaders = [one for one in project.loaders_of(dataset) if one.has_workers()]
        if not loaders or dataset.init is None:
            continue
        for name, value in assigned_attributes(dataset.init):
            opened = isinstance(value, ast.Call) and _HANDLE.fullmatch(dataset.source.full_name(value.func))
            if not opened or not any(uses_attribute(method, name) for method in dataset.fetching()):
                continue
            if any(
                name == other for method in dataset.fetching() for other, _ in assigned_attributes(method)
            ):
                continue
            yield finding(
                "handle-before-fork",
                f"{dataset.name}.{name} is opened in __init__, and all of the {loaders[0].crew} of "
                f"{loaders[0].name} read from it.",
                f"self.{name} = None  # in {dataset.name}.__init__\n"
                f"if self.{name} is None:  # where samples are fetched\n"
                f"    self.{name} = {written(value)}",
                file=dataset.source.path,
                line=value.lineno,
            )


def cuda_in_worker(project: Project) -> Iterator[Finding]:
    """``.cuda()`` or ``.to("cuda")`` where samples are fetched or collated."""
    for loader in project.loaders:
        if not loader.has_workers():
            continue
        collate = loader.argument("collate_fn")
        functions: list[Function] = [] if loader.dataset is None else loader.dataset.fetching()
        source = loader.source if loader.dataset is None else loader.dataset.source
        for where, function in [(source, one) for one in functions] + [
            (loader.source, one) for one in _functions(loader.source, collate)
        ]:
            used = next((node for node in ast.walk(function) if _moves_to_cuda(node)), None)
            if used is not None:
                yield finding(
                    "cuda-in-worker",
                    f"{function.name} calls {written(used)} inside the {loader.crew} of {loader.name}.",
                    f"for batch in {loader.name}:  # return CPU tensors, move batches here\n"
                    '    batch = batch.to("cuda", non_blocking=True)',
                    file=where.path,
                    line=getattr(used, "lineno", None),
                )


def not_picklable(project: Project) -> Iterator[Finding]:
    """A lambda or an inner function that spawned workers would have to unpickle."""
    for loader in project.loaders:
        method = _start_method(loader)
        if not loader.has_workers() or method is None:
            continue
        for argument in ("collate_fn", "worker_init_fn"):
            given = loader.argument(argument)
            inner = isinstance(given, ast.Name) and any(
                isinstance(node, ast.FunctionDef) and node.name == given.id
                for node in own_statements(loader.within)
                if not isinstance(loader.within, ast.Module)
            )
            if given is not None and (isinstance(given, ast.Lambda) or inner):
                what = "a lambda" if isinstance(given, ast.Lambda) else f"{written(given)}, an inner function"
                yield finding(
                    "not-picklable",
                    f"{argument} of {loader.name} is {what}, and its workers are started with {method}.",
                    "Define the function at the top level of a module, and pass it by name.",
                    file=loader.source.path,
                    line=given.lineno,
                )


def missing_main_guard(project: Project) -> Iterator[Finding]:
    """A loader with spawned workers that the module itself iterates when it is imported."""
    for loader in project.loaders:
        method = _start_method(loader)
        if not isinstance(loader.within, ast.Module) or not loader.has_workers() or method is None:
            continue
        if any(node is loader.call for node in _unguarded(loader.within)):
            yield finding(
                "missing-main-guard",
                f"{loader.name} is created when the module is imported, and its {loader.crew}, started with "
                f"{method}, import the module again.",
                'if __name__ == "__main__":  # around the code that creates and iterates it',
                file=loader.source.path,
                line=loader.call.lineno,
            )


def threads_per_worker(project: Project) -> Iterator[Finding]:
    """OpenCV in the workers, which starts a thread per core in each of them."""
    if any(source.mentions("setNumThreads") for source in project.sources):
        return
    for dataset in project.datasets:
        loaders = [one for one in project.loaders_of(dataset) if one.has_workers(2)]
        call = next(
            (call for method in dataset.fetching() for call in dataset.source.calls(_OPENCV, method)), None
        )
        if loaders and call is not None:
            yield finding(
                "threads-per-worker",
                f"{dataset.name} calls {written(call.func)}, and OpenCV starts a thread per core in each of "
                f"the {loaders[0].crew} of {loaders[0].name}.",
                "cv2.setNumThreads(0)  # at the top of the module, below the imports",
                file=dataset.source.path,
                line=call.lineno,
            )


def _functions(source: Source, given: ast.expr | None) -> list[Function]:
    if not isinstance(given, ast.Name):
        return []
    return [node for node in source.nodes if isinstance(node, ast.FunctionDef) and node.name == given.id]


def _moves_to_cuda(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.args:
        return not isinstance(node.func.value, ast.Name) or node.func.value.id != "torch"
    moved = [*node.args[:1]] if isinstance(node.func, ast.Attribute) and node.func.attr == "to" else []
    moved += [keyword.value for keyword in node.keywords if keyword.arg == "device"]
    return any(isinstance(one, ast.Constant) and str(one.value).startswith("cuda") for one in moved)


def _start_method(loader: LoaderCall) -> str | None:
    """How the workers are started, where the source says that they are not forked."""
    given = loader.argument("multiprocessing_context")
    if given is not None:
        return next(
            (n.value for n in ast.walk(given) if isinstance(n, ast.Constant) and n.value in _PICKLING), None
        )
    for call in loader.source.calls(_START):
        if call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value in _PICKLING:
            return str(call.args[0].value)
    return None


def _unguarded(module: ast.Module) -> Iterator[ast.AST]:
    """What runs when a module is imported."""
    for statement in module.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield from ast.walk(statement)
