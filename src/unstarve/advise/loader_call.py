"""The code that advice prints: the user's own ``DataLoader(…)`` call with a change applied."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from unstarve.advise.framework_words import framework_call, wrapped_dataset
from unstarve.advise.proposal import Code, Edit
from unstarve.model import LoaderSummary
from unstarve.model.saved import NEED_WORKERS, POSITIONS

_DEFAULTS: dict[str, Any] = {
    "num_workers": 0,
    "prefetch_factor": 2,
    "pin_memory": False,
    "persistent_workers": False,
    "drop_last": False,
    "in_order": True,
    "timeout": 0,
}
STOCK = {*POSITIONS, *_DEFAULTS}
"""Arguments of torch's loader that advice sets."""
_WIDEST = 72
"""Longest call on one line, in columns: a report has 80."""


def code_for(loader: LoaderSummary | None, edit: Edit) -> str:
    """The edit as code that can be pasted over the loader's statement: commands to run once are comments."""
    lines = [f"# once, in a shell: {command}" for command in edit.shell] + list(edit.before)
    if loader is not None and edit.changes_call:
        lines.append(_framework_code(loader, edit) or loader.statement + edited_call(loader, edit))
    lines += edit.after
    code = "\n".join(lines)
    return f"import unstarve\n\n{code}" if "unstarve." in code else code


def _framework_code(loader: LoaderSummary, edit: Edit) -> str | None:
    """The edit in the words of the framework that creates the loader; None for the user's own loader."""
    if loader.maker is None:
        return None
    own = loader.statement + edited_call(loader, edit) if loader.source is not None else None
    arguments = edit.arguments
    if own is None and edit.dataset is not None:  # it gets to a stock loader: what only ours takes is void
        arguments = {name: value for name, value in arguments.items() if name in STOCK}
    told = framework_call(loader, arguments, own) if own or arguments else ""
    if own is not None or edit.dataset is None:
        return told
    return f"{told}\n{wrapped_dataset(loader.maker, edit.dataset)}".strip()


def edited_call(loader: LoaderSummary, edit: Edit) -> str:
    """The loader's call after the edit; built from the recorded arguments if its source is unknown."""
    written = _parsed(loader.source)
    if written is not None:
        try:
            return _changed(written, edit, len(loader.statement))
        except RecursionError:  # nested too deeply
            pass
    return _changed(_from_config(loader.config), edit, len(loader.statement))


def _changed(call: ast.Call, edit: Edit, indent: int) -> str:
    for name, value in edit.arguments.items():
        _set(call, name, value)
    if edit.arguments.get("num_workers") == 0:
        call.keywords = [keyword for keyword in call.keywords if keyword.arg not in NEED_WORKERS]
    if edit.dataset is not None:
        _set_dataset(call, edit.dataset)
    if edit.engine:
        call.func = ast.parse("unstarve.DataLoader", mode="eval").body
    return _written(call, indent)


def _set_dataset(call: ast.Call, template: str) -> None:
    """Put the call's dataset into the template; it is the first argument, or called ``dataset``."""
    for keyword in call.keywords:
        if keyword.arg == "dataset":
            keyword.value = ast.parse(template.format(ast.unparse(keyword.value)), mode="eval").body
            return
    if call.args and not isinstance(call.args[0], ast.Starred):
        call.args[0] = ast.parse(template.format(ast.unparse(call.args[0])), mode="eval").body


def _parsed(source: str | None) -> ast.Call | None:
    try:
        found = ast.parse(source or "", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # run files are untrusted input
        return None
    return found if isinstance(found, ast.Call) else None


def _set(call: ast.Call, name: str, value: Any) -> None:
    new: ast.expr = ast.parse(value, mode="eval").body if isinstance(value, Code) else ast.Constant(value)
    for keyword in call.keywords:
        if keyword.arg == name:
            keyword.value = new
            return
    place = POSITIONS.index(name) if name in POSITIONS else len(call.args)
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    if place < len(call.args) and not starred and _function(call) == "DataLoader":
        call.args[place] = new
        return
    for keyword in call.keywords:
        if keyword.arg is None:  # **options may contain the same name, and a name given twice is an error
            keyword.value = _overridden(keyword.value, name, new)
            return
    call.keywords.append(ast.keyword(name, new))


def _overridden(options: ast.expr, name: str, value: ast.expr) -> ast.Dict:
    """``{**options, "num_workers": 8}``."""
    if isinstance(options, ast.Dict):
        return ast.Dict([*options.keys, ast.Constant(name)], [*options.values, value])
    return ast.Dict([None, ast.Constant(name)], [options, value])


def _function(call: ast.Call) -> str:
    named = call.func
    return named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""


def _from_config(config: Mapping[str, Any]) -> ast.Call:
    """A call that creates such a loader; objects appear as the name of their argument."""
    given: dict[str, Any] = {}
    sampler, batched = config.get("sampler"), config.get("batch_sampler")
    if config.get("batch_size") is not None:
        given["batch_size"] = ast.Constant(config["batch_size"])
        if sampler == "RandomSampler":
            given["shuffle"] = ast.Constant(True)
        elif sampler not in (None, "SequentialSampler", "_InfiniteConstantSampler"):
            given["sampler"] = ast.Name("sampler")
    elif batched is not None:
        given["batch_sampler"] = ast.Name("batch_sampler")
    else:
        given["batch_size"] = ast.Constant(None)
    if config.get("collate_fn") not in (None, "default_collate", "default_convert"):
        given["collate_fn"] = ast.Name("collate_fn")
    for name, default in _DEFAULTS.items():
        if config.get(name, default) != default:
            given[name] = ast.Constant(config[name])
    if "multiprocessing_context" in config:
        given["multiprocessing_context"] = ast.Constant(config["multiprocessing_context"])
    keywords = [ast.keyword(name, value) for name, value in given.items()]
    return ast.Call(ast.Name("DataLoader"), [ast.Name("dataset")], keywords)


def _written(call: ast.Call, indent: int = 0) -> str:
    """The call on one line if it fits, otherwise one argument per line."""
    line = ast.unparse(call)
    if indent + len(line) <= _WIDEST:
        return line
    arguments = [ast.unparse(argument) for argument in call.args]
    arguments += [
        f"**{ast.unparse(k.value)}" if k.arg is None else f"{k.arg}={ast.unparse(k.value)}"
        for k in call.keywords
    ]
    return f"{ast.unparse(call.func)}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"


def loader_arguments(
    arguments: Mapping[str, Any], options: Mapping[str, Any], dataset: str = "dataset"
) -> str:
    """A ``DataLoader(dataset, …)`` call with these arguments; objects in `options` appear by name."""
    given = {name: ast.Constant(value) for name, value in arguments.items()}
    for name, value in options.items():
        if name not in given:
            plain = isinstance(value, (bool, int, float, str, type(None)))
            given[name] = ast.Constant(value) if plain else ast.Name(name)  # type: ignore[assignment]  # either
    keywords = [ast.keyword(name, value) for name, value in given.items()]
    return _written(ast.Call(ast.Name("DataLoader"), [ast.parse(dataset, mode="eval").body], keywords))
