"""Whether a setting fits into memory."""

from __future__ import annotations

import torch

from unstarve.model import LoaderSettings
from unstarve.tune.memory_fit import MemoryFit, batch_bytes, is_on_accelerator, smaller

MB = 1_000_000


def test_a_setting_fits_by_its_workers_and_what_they_have_under_way() -> None:
    room = MemoryFit(free_bytes=1000 * MB, shm_free_bytes=300 * MB, batch_bytes=10 * MB, worker_bytes=50 * MB)
    assert room.fits(LoaderSettings(0))
    assert room.fits(LoaderSettings(8, 2))
    assert not room.fits(LoaderSettings(16, 2))
    assert not room.fits(LoaderSettings(8, 4))  # for want of shared memory
    assert MemoryFit(1000 * MB, None, batch_bytes=10 * MB, worker_bytes=0).fits(LoaderSettings(8, 8))


def test_what_a_batch_takes_is_found_in_any_nesting() -> None:
    batch = {"a": [torch.zeros(10), (torch.zeros(5, dtype=torch.uint8), "text")], "b": torch.zeros(2).numpy()}
    assert batch_bytes(batch) == 40 + 5 + 8
    assert not is_on_accelerator(batch)
    assert is_on_accelerator([{"x": torch.zeros(1, device="meta")}])


def test_running_out_of_memory_goes_back_step_by_step_to_the_users_own() -> None:
    own, settings = LoaderSettings(2, 2), LoaderSettings(16, 8)
    seen = [settings]
    while (settings := smaller(settings, own)) != seen[-1]:
        seen.append(settings)
    assert [one.in_flight for one in seen] == sorted({one.in_flight for one in seen}, reverse=True)
    assert seen[-1].in_flight <= own.in_flight
    assert smaller(LoaderSettings(4, 1), LoaderSettings(0)) == LoaderSettings(2, 1)
    assert smaller(LoaderSettings(1, 1), LoaderSettings(0)) == LoaderSettings(0)
