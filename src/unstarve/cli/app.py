"""The application with all its verbs, and the point where the user's own command begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from unstarve.cli import (
    bench,
    check,
    compare,
    demo,
    ideal,
    import_,
    inspect,
    lab,
    nsys,
    pack,
    report,
    run,
    serve,
    top,
    trace,
    tune,
    whatif,
)


class _Verb(TyperCommand):
    """A verb whose help shows no type for flags, and N for numbers."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        for option in self.params:
            _simplify(option)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments as their help does: ``[OPTIONS] CMD…``."""
        named = (
            (str(one.metavar or one.name), one.required)
            for one in self.params
            if one.param_type_name == "argument"
        )
        return ["[OPTIONS]", *(name if required else f"[{name}]" for name, required in named)]

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option that shows the help."""
        option = super().get_help_option(ctx)
        _simplify(option)
        return option


class _Verbs(TyperGroup):
    """A group of verbs, whose own help shows no type for flags either."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        for option in self.params:
            _simplify(option)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option that shows the help."""
        option = super().get_help_option(ctx)
        _simplify(option)
        return option


def _simplify(option: Any) -> None:
    if getattr(option, "is_flag", False):
        option.metavar = ""
    elif option is not None and option.metavar is None and getattr(option, "min", None) is not None:
        option.metavar = "N"


app = typer.Typer(
    name="unstarve",
    cls=_Verbs,
    help="Is my training waiting for data, why, and how much faster could it be?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: `unstarve run train.py`, or `unstarve demo` to see it work.",
)
app.command("run", cls=_Verb)(run.run)
app.command("ideal", cls=_Verb)(ideal.ideal)
app.command("tune", cls=_Verb)(tune.tune)
app.command("check", cls=_Verb)(check.check)
app.command("report", cls=_Verb)(report.report)
app.command("compare", cls=_Verb)(compare.compare)
app.command("import", cls=_Verb)(import_.import_)
app.command("nsys", cls=_Verb)(nsys.nsys)
app.command("inspect", cls=_Verb)(inspect.inspect)
app.command("top", cls=_Verb)(top.top)
app.command("trace", cls=_Verb)(trace.trace)
app.command("serve", cls=_Verb)(serve.serve)
app.command("pack", cls=_Verb)(pack.pack)
app.command("whatif", cls=_Verb)(whatif.whatif)
app.command("demo", cls=_Verb)(demo.demo)
app.command("bench", cls=_Verb)(bench.bench)

labs = typer.Typer(
    cls=_Verbs,
    help="Learn it: exercises that check themselves.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: `unstarve lab list`, then `unstarve lab start io-dataloader`.",
)
labs.command("list", cls=_Verb)(lab.list_labs)
labs.command("start", cls=_Verb)(lab.start)
labs.command("hint", cls=_Verb)(lab.hint)
labs.command("check", cls=_Verb)(lab.check)
app.add_typer(labs, name="lab")

_TAKE_A_COMMAND = {"run", "ideal", "tune", "nsys", "check"}


def _show_version(wanted: bool) -> None:
    if wanted:
        from unstarve import __version__
        from unstarve.native import why_not_native

        missing = why_not_native()
        typer.echo(f"unstarve {__version__} (native part {'in use' if missing is None else missing})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def separate(argv: Sequence[str]) -> list[str]:
    """Put ``--`` in front of the user's command, so that its arguments are not parsed as ours.

    >>> separate(["run", "-o", "a.unstarve", "-m", "pkg.train", "--steps", "9"])
    ['run', '-o', 'a.unstarve', '--', '-m', 'pkg.train', '--steps', '9']
    """
    arguments = list(argv)
    if not arguments or arguments[0] not in _TAKE_A_COMMAND:
        return arguments
    takes_value = _options_with_value(arguments[0])
    at = 1
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return arguments
        if word == "--profile":  # its value is optional, and comes with "="
            arguments[at] = "--profile="
            at += 1
            continue
        if arguments[0] == "check" and (word == "--static" or check.is_named([word])):
            return arguments  # nothing is run, or it takes no arguments: all that follows is ours
        if not word.startswith("-") or word == "-m":
            return [*arguments[:at], "--", *arguments[at:]]
        at += 2 if word in takes_value else 1
    return arguments


def _options_with_value(verb: str) -> set[str]:
    command: Any = typer.main.get_command(app)
    return {
        flag
        for option in command.commands[verb].params
        if option.param_type_name == "option" and not option.is_flag
        for flag in option.opts
    }
