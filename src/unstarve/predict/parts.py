"""What a batch demands of whom, how a loader and its machine are laid out, and how they play together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Work(NamedTuple):
    """What one batch takes, in seconds of whoever does it, with a core of its own."""

    cpu_s: float = 0.0
    """Worker, on a core: the samples …"""
    collate_s: float = 0.0
    """… and the batch made of them."""
    blocked_s: float = 0.0
    """Worker, off the CPU."""
    late_s: float = 0.0
    """The same, because others had the cores when it was to go on."""
    disk_s: float = 0.0
    """Worker, waiting for a disk that has nobody else to serve."""
    send_s: float = 0.0
    """Sending thread, on a core."""
    send_delay_s: float = 0.0
    """Until the message is there, on no core."""
    index_s: float = 0.0
    """Training thread, on a core: drawing the indices of a batch."""
    take_s: float = 0.0
    """Training thread, on a core: receiving and unpacking."""
    take_delay_s: float = 0.0
    """The same on no core …"""
    busy_delay_s: float = 0.0
    """… and how much more while its worker computes: that one must let go of its interpreter first."""
    pin_s: float = 0.0
    """Pin thread, on a core; 0 without pinning."""
    step_s: float = 0.0
    """Training thread, on a core."""
    step_delay_s: float = 0.0
    """The same on no core: it waits for an accelerator."""
    ahead_s: float = 0.0
    """The accelerator works on, while the training thread asks for its next batch already."""

    @property
    def device_s(self) -> float:
        """What an accelerator is busy with the batch, from its delivery on when it has nothing else to do."""
        return self.step_s + self.step_delay_s + self.ahead_s


class Crowd(NamedTuple):
    """Who else wants the cores."""

    hungry: float = 0.0
    """Other people's processes that want a core all the time; their groups, where `grouped`."""
    spare: float = 0.0
    """Cores that they leave free in any case."""
    grouped: bool = False
    """The kernel shares cores between sessions or containers first: more workers then get no more of them."""

    def speed(self, users: float, cores: float) -> float:
        """How fast each of so many threads of ours gets on, against one with a core of its own."""
        if not self.grouped:
            all_ours = cores * users / (users + self.hungry)
        else:
            # A group's weight is spread over the cores it runs on, so on each one it counts for less.
            used = min(users, cores)
            all_ours = cores * used / (cores + self.hungry * used)
        return min(1.0, cores / users, max(all_ours, self.spare) / users)


NOBODY = Crowd()


class Layout(NamedTuple):
    """How a loader is set up, and the machine it runs on."""

    workers: int
    prefetch: int
    in_order: bool
    pinned: bool
    cores: float
    crowd: Crowd = NOBODY
    step_threads: float = 1.0
    """Threads that a step keeps busy while the training thread computes."""
    disk_power: float = 1.0
    """So many reads at once are served at ``reads ** disk_power`` times the speed of one …"""
    disk_depth: float = math.inf
    """… and more than this many no faster."""
    remote_limit: float = math.inf
    """Up to so many workers blocked at once get on as one does alone …"""
    remote_power: float = 1.0
    """… and more of them the way `disk_power` says, counted from there."""


class Start(NamedTuple):
    """Beginning an epoch."""

    worker_s: float
    """Training thread, for each worker that is made."""
    boot_s: float
    """Worker, on a core, before its first batch."""


@dataclass(frozen=True, slots=True)
class Played:
    """When batches were asked for and delivered; the clock starts with ``iter()``."""

    ask_s: list[float]
    got_s: list[float]
    lost_s: list[float]
    """Of each wait, what kept an accelerator idle too; without one, the wait itself."""
    slowdown: float
    """How much longer than alone all CPU work took."""
