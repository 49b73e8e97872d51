"""Write the manual page of `unstarve`, all verbs in one, from the description of the command line.

python tools/man_page.py unstarve.1 && man ./unstarve.1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import typer

from unstarve.cli.app import app
from unstarve.cli.help_text import explanation, signature
from unstarve.cli.reference import Parameter, VerbReference, reference_of, verb_references


def man_page() -> str:
    """The page in the man macros."""
    program = reference_of(typer.main.get_command(app), "")
    verbs = verb_references()
    lines = [f'.TH UNSTARVE 1 "" "unstarve {version("unstarve")}" "User Commands"']
    lines += [".SH NAME", f"unstarve \\- {roff(uncapitalized(program.summary))}"]
    lines += [".SH SYNOPSIS", *(line for verb in verbs if not verb.verbs for line in synopsis(verb))]
    lines += [".SH DESCRIPTION", *paragraphs(program)]
    lines += [".SH OPTIONS", *entries(program.options)]
    lines += [".SH VERBS", *(line for verb in verbs for line in section(verb))]
    variables = {one.variable: (verb, one) for verb in verbs for one in verb.options if one.variable}
    lines += [".SH ENVIRONMENT"]
    for name, (verb, option) in sorted(variables.items()):
        lines += [".TP", f".B {roff(name)}", f"The same as {roff(option.names[-1])} of unstarve {verb.name}."]
    return "\n".join(lines) + "\n"


def section(verb: VerbReference) -> Iterator[str]:
    """A verb's part of the page."""
    yield f'.SS "unstarve {verb.name}"'
    yield from synopsis(verb)
    yield from paragraphs(verb)
    yield from entries((*verb.arguments, *verb.options[:-1]))  # the last is --help, which all have
    for example in verb.examples:
        yield from (".PP", roff(example.purpose), ".PP", ".RS 4", ".nf", roff(example.line), ".fi", ".RE")


def synopsis(verb: VerbReference) -> Iterator[str]:
    """The usage line, with the words to be typed in bold."""
    typed = f"unstarve {verb.name}"
    yield from (".PP", f"\\fB{roff(typed)}\\fR{roff(verb.usage.removeprefix(typed))}")


def paragraphs(verb: VerbReference) -> Iterator[str]:
    """What the verb does."""
    for text in (verb.summary, *verb.description):
        yield from (".PP", roff(text))


def entries(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    """Arguments and options, each with its explanation."""
    for one in parameters:
        yield from (".TP", f"\\fB{roff(signature(one))}\\fR", roff(explanation(one)))


def roff(text: str) -> str:
    """A line of text: nothing in it is taken for a request, and what stood in backticks is bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def uncapitalized(sentence: str) -> str:
    """As the name line wants it: no capital, no full stop."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


if __name__ == "__main__":
    (target,) = sys.argv[1:]
    Path(target).write_text(man_page())
