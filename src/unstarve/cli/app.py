"""The application with all its verbs, and the point where the user's own command begins."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
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
    merge,
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
from unstarve.cli.examples import examples

_WIDEST_HELP = 100


class _Verb(TyperCommand):
    """A verb whose help is made from its reference."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _write_help(self, ctx, formatter)


class _Verbs(TyperGroup):
    """A group of verbs, whose help is made in the same way."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a verb, show the help: typer's own `no_args_is_help` would not show this one."""
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _write_help(self, ctx, formatter)


def _write_help(command: Any, ctx: Any, formatter: Any) -> None:
    from unstarve.cli.help_text import help_text
    from unstarve.cli.reference import reference_of

    name = ctx.command_path.partition(" ")[2]
    width = max(40, min(shutil.get_terminal_size().columns, _WIDEST_HELP))
    formatter.write(help_text(reference_of(command, name), width))


app = typer.Typer(
    name="unstarve",
    cls=_Verbs,
    help="Is my training waiting for data, why, and how much faster could it be?\n\n"
    "Exit codes: 0 done, 1 a gate failed, 2 bad usage or input, 3 the command could not be started; "
    "otherwise the exit code of the command that was run.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=_Verb)(run.run)
app.command("ideal", cls=_Verb)(ideal.ideal)
app.command("tune", cls=_Verb)(tune.tune)
app.command("check", cls=_Verb)(check.check)
app.command("report", cls=_Verb)(report.report)
app.command("merge", cls=_Verb)(merge.merge)
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
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)


@labs.callback()
@examples(
    ("See which labs there are:", "unstarve lab list"),
    ("Start the first one:", "unstarve lab start io-dataloader"),
    ("Check it, in its folder:", "unstarve lab check"),
)
def _labs() -> None:
    pass


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
@examples(
    ("See it work in under a minute:", "unstarve demo"),
    ("Record your training and print the verdict:", "unstarve run train.py"),
    ("Complete verbs and options with the Tab key:", "unstarve --install-completion"),
)
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


def misplaced(arguments: Sequence[str]) -> str | None:
    """Say which options of the user's script are probably meant for us: the script does not mention them.

    `arguments` are separated.
    """
    if not arguments or arguments[0] not in _TAKE_A_COMMAND or "--" not in arguments:
        return None
    verb, command = arguments[0], arguments[arguments.index("--") + 1 :]
    if not command or not command[0].endswith(".py"):
        return None
    try:
        script = Path(command[0]).read_text(errors="replace")
    except OSError:
        return None  # whoever starts it says so
    known = {flag for option in _options(verb) for flag in option.opts if flag.startswith("--")}
    given = [word.partition("=")[0] for word in command[1:]]
    name = next((one for one in given if one in known and not _mentions(script, one)), None)
    if name is None:
        return None
    return (
        f"{name} comes after {command[0]} and so belongs to it; if it is meant for unstarve, put it before: "
        f"unstarve {verb} {name} … {command[0]}"
    )


def _mentions(script: str, option: str) -> bool:
    name = option.removeprefix("--")
    return name in script or name.replace("-", "_") in script


def _options_with_value(verb: str) -> set[str]:
    return {flag for option in _options(verb) if not option.is_flag for flag in option.opts}


def _options(verb: str) -> list[Any]:
    command: Any = typer.main.get_command(app)
    return [option for option in command.commands[verb].params if option.param_type_name == "option"]
