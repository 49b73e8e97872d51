"""What a person reads about tuning."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from hostile_names import EVERYTHING, unsafe
from unstarve.analyze.trial_table import so_far, tried
from unstarve.model import Change, LoaderSettings, Trial, Tuning
from unstarve.model.tune_run import TunedLoader, TuneRun
from unstarve.present.tuned import headline, print_tuning, trial_line

OWN, BEST = LoaderSettings(0), LoaderSettings(8, 4)
TRIALS = (
    Trial(OWN, "measured", 12, 1.0, 100, 95, 105, 0.9, 200_000_000, 0),
    Trial(BEST, "measured", 12, 1.0, 250, 240, 260, None, None, None),
)
FOUND = Tuning(
    "train.py:41",
    OWN,
    BEST,
    TRIALS,
    Change(2.5, 2.3, 2.7, shown=True),
    False,
    "it is",
    True,
    24,
    2.0,
    proven_steps=24,
)
KEPT = replace(FOUND, chosen=OWN, gain=None, keep=True, reason="all 2 cores are busy")
PREDICTED = replace(FOUND, settled=False, trials=(TRIALS[0], replace(TRIALS[1], kind="predicted")))


def loader(tuning: Tuning | None, **more: str) -> TunedLoader:
    return TunedLoader("train_loader", "DataLoader", None, None, 1, 24, tuning, **more)


def shown(*loaders: TunedLoader, width: int = 80, ended_by: str | None = "settled", ranks: int = 1) -> str:
    out = io.StringIO()
    run = TuneRun(("train.py",), 0, ranks, 2.0, ended_by, loaders)
    tables = [tried(one.tuning) for one in run.tuned if one.tuning is not None]
    print_tuning(run, tables, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize(
    ("tuning", "sentence"),
    [
        (FOUND, "2.50× (2.30–2.70) proven over 24 steps: num_workers=8, prefetch_factor=4."),
        (PREDICTED, "2.50× (2.30–2.70) predicted, not proven: num_workers=8, prefetch_factor=4."),
        (KEPT, "No better setting: all 2 cores are busy. Keep num_workers=0."),
        (
            replace(KEPT, trials=TRIALS[:1], reason="no other setting was tried"),
            "Keep num_workers=0: no other",
        ),
        (replace(KEPT, settled=False), "Too little was measured to tell: num_workers=0 stays."),
        (replace(KEPT, trials=()), "Training ended before any setting was measured"),
    ],
)
def test_the_answer_comes_first(tuning: Tuning, sentence: str) -> None:
    assert headline(loader(tuning)).startswith(sentence)


def test_hostile_names_stay_text() -> None:
    bad = replace(loader(replace(FOUND, where=EVERYTHING, notes=(EVERYTHING,))), name=EVERYTHING)
    text = shown(bad, replace(bad, tuning=None, left_alone=EVERYTHING), width=5000)
    assert unsafe(text) == []
    assert "[red]x[/red]" in text
    assert unsafe(trial_line(EVERYTHING, TRIALS[0], 250, 80).plain) == []


def test_the_table_says_what_was_tried_what_is_now_and_what_is_best() -> None:
    text = shown(loader(FOUND))
    assert "train_loader (train.py:41)" in text
    rows = [line.split() for line in text.splitlines() if line.strip()[:1] in ("0", "8")]
    assert rows[0] == ["0", "–", "100", "95.0–105", "90%", "200", "MB", "1.00×", "now"]
    assert rows[1] == ["8", "4", "250", "240–260", "–", "–", "2.50×", "best"]
    assert "stopped when tuning was done" in text


def test_why_settings_are_kept_is_said() -> None:
    assert "all 2 cores are busy" in shown(loader(KEPT))


def test_a_faster_row_that_was_not_proven_is_not_below_a_best_one() -> None:
    text = shown(loader(KEPT))
    rows = [line.split() for line in text.splitlines() if line.strip()[:1] in ("0", "8")]
    assert rows[0][-1] == "now"
    assert rows[1][-2:] == ["not", "proven"]
    assert "best" not in text
    legend = "not proven: faster, but not by more than the noise"
    assert legend in text
    assert legend not in shown(loader(FOUND))


@pytest.mark.parametrize(
    ("trials", "chosen", "proven"),
    [
        (TRIALS, BEST, 24),
        ((TRIALS[0], replace(TRIALS[1], low=30)), OWN, 0),
        ((TRIALS[0], replace(TRIALS[1], kind="predicted")), BEST, 0),
        ((TRIALS[0], replace(TRIALS[1], kind="predicted", low=90)), OWN, 0),
        (TRIALS[1:], OWN, 0),
    ],
)
def test_training_that_ends_first_leaves_what_is_proven_or_else_what_is_predicted(
    trials: tuple[Trial, ...], chosen: LoaderSettings, proven: int
) -> None:
    cut = replace(FOUND, settled=False, chosen=OWN, gain=None, trials=trials, proven_steps=0)
    found = so_far(cut)
    assert (found.chosen, found.proven_steps) == (chosen, proven)
    assert found.keep == (chosen == OWN)
    assert found.is_predicted == (chosen == BEST and not proven)


def test_loaders_that_were_left_alone_are_named_with_the_reason() -> None:
    other = replace(loader(None, left_alone="it is endless"), name="val")
    assert "val: it is endless: left alone" in shown(loader(FOUND), other)


def test_nothing_tuned_is_said() -> None:
    assert "iterated no torch DataLoader" in shown(ended_by=None)
    assert "interrupted before the command iterated a DataLoader" in shown(ended_by="interrupt")


def test_a_command_that_was_started_again_is_to_be_started_more_often_the_next_time() -> None:
    run = TuneRun(("train.py",), 0, 1, 2.0, None, (loader(replace(FOUND, settled=False)),), runs=5)
    out = io.StringIO()
    print_tuning(run, [[]], Console(file=out, width=80))
    assert "--rerun 12" in out.getvalue()
    assert "24 steps in the last of 5 runs" in out.getvalue()
    assert "Nothing was tuned." in shown(loader(None, left_alone="no"), ended_by=None)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    lines = shown(loader(FOUND), loader(KEPT), width=width, ranks=2).splitlines()
    assert max(map(len, lines)) <= width


def test_no_number_is_cut_off() -> None:
    wide = Trial(OWN, "measured", 12, 1.0, 1_520, 798, 10_512, 0.01, 416_000_000, 1_200_000_000)
    text = shown(loader(replace(KEPT, trials=(wide,))), width=80)
    assert "…" not in text
    for said in ("798–10,512", "1.6 GB", "vs. now", "now"):
        assert said in text


def test_a_trial_is_one_line_and_its_bar_compares_it_with_the_best() -> None:
    line = trial_line("train", TRIALS[0], 200, 100).plain
    assert "0 workers" in line
    assert line.count("█") == line.count("░") == 10
    assert line.endswith("100 samples/s, waiting 90%")
    assert "█" not in trial_line("train", TRIALS[1], 250, 60).plain


def test_json_has_all_of_it_and_the_change() -> None:
    run = TuneRun(("train.py",), 0, 1, 2.0, "settled", (loader(FOUND), loader(KEPT)))
    plain = run.to_json()
    assert plain["schema"] == "unstarve.tune/1"
    assert [one["change"] for one in plain["loaders"]] == [{"num_workers": 8, "prefetch_factor": 4}, {}]
    assert TunedLoader.from_json({k: v for k, v in plain["loaders"][0].items() if k != "change"}) == loader(
        FOUND
    )


def test_images_read_by_unstarve_are_marked_and_explained() -> None:
    best = LoaderSettings(3, 2, part="images")
    trials = (TRIALS[0], Trial(best, "measured", 12, 1.0, 1705, 1292, 2507, 0.65, 423_000_000, 0))
    found = replace(FOUND, before=OWN, chosen=best, trials=trials)
    assert headline(loader(found)).startswith(
        "2.50× (2.30–2.70) proven over 24 steps: ImageFolderDataset in unstarve.DataLoader, num_workers=3"
    )
    text = shown(loader(found))
    (row,) = [line.split() for line in text.splitlines() if line.strip().startswith("3*")]
    assert row[-1] == "best"
    assert "* threads instead of worker processes: unstarve reads the images" in text
    assert "pixels differ slightly, as between any two JPEG decoders" in " ".join(
        text.replace("│", " ").split()
    )
    assert max(map(len, text.splitlines())) <= 80
    assert "  6 batches ahead" in trial_line("train", trials[1], 1705, 100).plain
    assert loader(found).change() == {"num_workers": 3, "prefetch_factor": 2, "images": True}


@pytest.mark.parametrize(
    ("part", "mark", "words"),
    [
        ("cached", "†", "CachedDataset, once an epoch has filled it"),
        ("gather", "§", "rows are copied without workers"),
        ("threads", "‡", "threads of unstarve's engine threads"),
    ],
)
def test_each_part_has_its_mark_and_what_it_means(part: str, mark: str, words: str) -> None:
    best = LoaderSettings(3, 2, part)
    trials = (TRIALS[0], Trial(best, "measured", 12, 1.0, 1705, 1292, 2507, 0.65, 423_000_000, 0))
    found = loader(replace(FOUND, before=OWN, chosen=best, trials=trials))
    text = shown(found)
    assert f"3{mark}" in text
    assert words in text
    assert "the same batches" in text
    assert max(map(len, text.splitlines())) <= 80
    assert found.change() == {"num_workers": 3, "prefetch_factor": 2, part: True}


@pytest.mark.parametrize(
    ("ended_by", "words"),
    [(None, "use --rerun 3"), ("budget", "give it more"), ("interrupt", "interrupted before tuning")],
)
def test_a_tuning_that_is_cut_short_says_what_would_help(ended_by: str | None, words: str) -> None:
    run = TuneRun(("train.py",), 0, 1, 2.0, ended_by, (loader(replace(FOUND, settled=False)),))
    out = io.StringIO()
    print_tuning(run, [[]], Console(file=out, width=80))
    assert words in " ".join(out.getvalue().replace("│", " ").split())
