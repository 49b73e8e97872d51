"""One row of each frequent kind; tests replace the fields that matter to them."""

from __future__ import annotations

from unstarve.record import format as f

MS = 1_000_000
BATCH = f.BatchRow(
    loader=0,
    flags=0,
    epoch=0,
    position=0,
    thread=0,
    size=32,
    nbytes=-1,
    ask_ns=0,
    got_ns=0,
    own_ns=9,
    block=0,
    task=0,
    ready=1,
    sampler_ns=1000,
    wait_cpu_ns=2000,
    wait_queued_ns=-1,
    step_cpu_ns=3000,
    step_queued_ns=-1,
)
WORK = f.WorkRow(
    loader=f.NO_LOADER,
    flags=0,
    iteration=0,
    task=0,
    samples=32,
    received_ns=0,
    begin_ns=0,
    collate_ns=0,
    done_ns=0,
    cpu_ns=10 * MS,
    system_ns=0,
    queued_ns=0,
    asked_bytes=0,
    storage_bytes=0,
    delay_ns=-1,
    major_faults=0,
    switches=5,
    collate_cpu_ns=MS,
    collate_system_ns=0,
    collate_queued_ns=0,
    slow_index=17,
    slow_ns=MS,
    opens=32,
)
PULSE = f.PulseRow(
    doing=1,
    flags=0,
    at_ns=0,
    cpu_ns=0,
    queued_ns=0,
    storage_bytes=0,
    rss_bytes=0,
    shared_bytes=0,
    shm_bytes=-1,
    shm_total_bytes=-1,
)
