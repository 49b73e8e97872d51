"""Lab 1."""

from __future__ import annotations

from unstarve.labs.lab import Fault, Lab

LAB = Lab(
    name="io-dataloader",
    title="Is it the loader?",
    goal="Find out whether a training waits for its data, and make it stop waiting.",
    minutes=2,
    files=(
        "README.md",
        "synthetic_dataset.py",
        "slow_dataloader.py",
        "fast_dataloader.py",
        "profile_dataloader.sh",
        "analysis.md",
    ),
    edited="fast_dataloader.py",
    faults=(
        Fault("cpu", "cpu", 1.5),
        Fault("latency", "remote", 2.0),
        Fault("innocent", "fed"),
    ),
    hints=(
        "Run `./profile_dataloader.sh slow` and read the first line of the report: does training wait?",
        "If it waits, the time budget names the cause: `cpu` is work on a core, `remote` is time in which "
        "nobody works. More workers than cores help against the second only.",
        "Samples never change here. What has been computed or fetched once need not be again: "
        "`unstarve.CachedDataset(dataset)`.",
        'If the report says FED, the loader is innocent: write "fed" and leave it alone.',
    ),
)
