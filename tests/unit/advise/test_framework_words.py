"""Changes to a loader in the words of the framework that creates it."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

from unstarve.advise.framework_words import framework_call, wrapped_dataset
from unstarve.checks.evidence.lost_time import setting
from unstarve.checks.objects.loader_parts import set_to
from unstarve.checks.objects.subject import Subject
from unstarve.collect.loader_origin import Origin
from unstarve.marks import SITE
from unstarve.model import LoaderSummary, Maker

TRAIN = Maker("transformers", "Trainer.get_train_dataloader")
EVAL = Maker("transformers", "Trainer.get_eval_dataloader")
SCRIPT = Maker("timm", "create_loader", "--workers")


def loader(maker: Maker | None) -> LoaderSummary:
    return LoaderSummary(
        "train", "train.py:3", "DataLoader", {}, 10, 1, 0.0, 0.0, None, None, False, False, None, maker=maker
    )


@pytest.mark.parametrize(
    ("maker", "change", "words"),
    [
        (
            TRAIN,
            {"num_workers": 8, "prefetch_factor": 4, "persistent_workers": True, "pin_memory": True},
            "TrainingArguments(dataloader_num_workers=8, dataloader_prefetch_factor=4, "
            "dataloader_persistent_workers=True, dataloader_pin_memory=True)",
        ),
        (TRAIN, {"batch_size": 64}, "TrainingArguments(per_device_train_batch_size=64)"),
        (EVAL, {"batch_size": 64}, "TrainingArguments(per_device_eval_batch_size=64)"),
        (TRAIN, {"in_order": False}, "# transformers cannot set in_order"),
        (SCRIPT, {"num_workers": 8}, "--workers 8"),
        (
            SCRIPT,
            {"num_workers": 8, "prefetch_factor": 4, "persistent_workers": True},
            "--workers 8\ncreate_loader(…, persistent_workers=True)\n# timm cannot set prefetch_factor",
        ),
        (Maker("timm", "create_loader"), {"num_workers": 8}, "create_loader(…, num_workers=8)"),
        (Maker("fastai"), {"num_workers": 8, "batch_size": 2}, "dls = ….dataloaders(…, num_workers=8, bs=2)"),
        (
            Maker("lightning", "Digits.train_dataloader"),
            {"num_workers": 8},
            "# in Digits.train_dataloader\nDataLoader(…, num_workers=8)",
        ),
        (Maker("otherlib", "run"), {"num_workers": 8}, "# where your code calls otherlib\nnum_workers=8"),
    ],
)
def test_a_change_is_written_as_the_framework_takes_it(
    maker: Maker, change: dict[str, Any], words: str
) -> None:
    assert framework_call(loader(maker), change) == words


def test_a_loader_of_the_users_own_has_no_other_words() -> None:
    assert framework_call(loader(None), {"num_workers": 8}) is None


def test_the_users_call_in_a_method_for_lightning_is_kept_as_it_is_given() -> None:
    call = "DataLoader(Rows({}), num_workers=8)"
    words = framework_call(loader(Maker("lightning", "Digits.val_dataloader")), {"num_workers": 8}, call)
    assert words == f"# in Digits.val_dataloader\n{call}"


@pytest.mark.parametrize(
    ("maker", "words"),
    [
        (TRAIN, "Trainer(…, train_dataset=Kept(train_dataset))"),
        (EVAL, "Trainer(…, eval_dataset=Kept(eval_dataset))"),
        (SCRIPT, "create_loader(Kept(dataset), …)"),
        (Maker("fastai"), "# and pass Kept(dataset) to fastai"),
    ],
)
def test_a_wrapped_dataset_goes_where_the_framework_takes_it(maker: Maker, words: str) -> None:
    assert wrapped_dataset(maker, "Kept({})") == words


def test_a_finding_names_the_frameworks_argument_where_it_has_one() -> None:
    assert setting(loader(TRAIN), num_workers=4) == "Write TrainingArguments(dataloader_num_workers=4)."
    assert setting(loader(None), num_workers=4) == "Pass num_workers=4 to train."
    assert setting(loader(TRAIN), in_order=False) == "Pass in_order=False to train."


def test_a_check_of_objects_does_so_too() -> None:
    made: DataLoader[Any] = DataLoader(range(8), num_workers=2)  # type: ignore[arg-type]  # a range will do
    assert set_to(Subject(made), num_workers=1) == "Pass num_workers=1 to loader"
    vars(made)[SITE] = tuple(Origin("train.py", 7, "transformers", "Trainer.get_train_dataloader"))
    assert set_to(Subject(made), num_workers=1) == "Write TrainingArguments(dataloader_num_workers=1)"
