"""A verb's `--help`, laid out like a manual page."""

from __future__ import annotations

import textwrap

from unstarve.cli.reference import Parameter, VerbReference

_INDENT = 2
_DEEP = 8


def help_text(verb: VerbReference, width: int) -> str:
    """The whole help of a verb. Only example lines may be wider than `width`: they can be pasted."""
    parts = [_paragraphs(f"Usage: {verb.usage}", width, indent=0, hang=7)]
    parts += [_paragraphs(text, width, indent=0) for text in (verb.summary, *verb.description)]
    if verb.verbs:
        longest = max(len(name) for name, _ in verb.verbs)
        lines = [
            _paragraphs(f"{name.ljust(longest)}  {summary}", width, _INDENT, hang=longest + 4)
            for name, summary in verb.verbs
        ]
        parts.append("Verbs:\n" + "\n".join(lines))
    for title, parameters in (("Arguments", verb.arguments), ("Options", verb.options)):
        if parameters:
            parts.append(f"{title}:\n" + "\n".join(_entry(one, width) for one in parameters))
    if verb.examples:
        lines = [f"  {one.purpose}\n    {one.line}" for one in verb.examples]
        parts.append("Examples:\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def signature(parameter: Parameter) -> str:
    """Names and value: ``-o, --output RUN``; an optional value keeps its ``[=…]`` at the name."""
    glue = "" if parameter.value.startswith("[=") or not parameter.value else " "
    return ", ".join(parameter.names) + glue + parameter.value


def explanation(parameter: Parameter) -> str:
    """The help of a parameter, with its default and its environment variable."""
    more = "" if parameter.default is None else f" [default: {parameter.default}]"
    if parameter.variable is not None:
        more += f" [variable: {parameter.variable}]"
    return parameter.help + more


def _entry(parameter: Parameter, width: int) -> str:
    head = " " * _INDENT + signature(parameter)
    return f"{head}\n{_paragraphs(explanation(parameter), width, _DEEP)}"


def _paragraphs(text: str, width: int, indent: int, hang: int | None = None) -> str:
    return textwrap.fill(
        text.replace("`", ""),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hang is None else hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
