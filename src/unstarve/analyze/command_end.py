"""How the command ended, in a sentence: it failed, was interrupted, or was killed."""

from __future__ import annotations

import signal

from unstarve.model import Run

_BY_SHELL = 128
"""A shell adds this to the number of the signal that ended a command."""


def failed(run: Run) -> bool:
    """Whether the command is known to have failed."""
    return bool(run.exit_code)


def ended_early(run: Run, when: str) -> str:
    """``The command failed after 12 steps (exit code 1): ValueError: …``, without a full stop.

    `when` is its ``after 12 steps``. Only for a run that `failed`.
    """
    code = run.exit_code or 0
    number = -code if code < 0 else code - _BY_SHELL
    name = signal.Signals(number).name if number in signal.Signals.__members__.values() else None
    if run.failure == "KeyboardInterrupt":  # torchrun turns the signal into an exit code
        return f"The command was interrupted {when}"
    if code < 0 or name is not None:
        shown = name or f"signal {number}"
        did = "was interrupted" if number == signal.SIGINT else f"was killed by {shown}"
        hint = ": memory may have run out" if number == signal.SIGKILL else ""
        return f"The command {did} {when}{hint}"
    why = f": {run.failure.rstrip('.')}" if run.failure else ""
    return f"The command failed {when} (exit code {code}){why}"


def after(steps: int) -> str:
    """``after 12 steps``."""
    return f"after {steps} step{'s' * (steps != 1)}"
