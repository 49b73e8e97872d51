"""Single transforms are timed inside their containers, and give what they gave before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from unstarve.collect import transforms
from unstarve.launch.hooks import TRANSFORMS


class Compose:
    """As torchvision's of the first kind."""

    def __init__(self, parts: list[Any]) -> None:
        self.transforms = parts

    def __call__(self, img: Any) -> Any:
        raise AssertionError("wrapped away")


class ComposeV2:
    """As torchvision's of the second kind."""

    def __init__(self, parts: list[Any]) -> None:
        self.transforms = parts

    def forward(self, *inputs: Any) -> Any:
        raise AssertionError("wrapped away")


class BasicTransform:
    """As the base of albumentations' transforms."""

    def __call__(self, **data: Any) -> dict[str, Any]:
        return {key: value + 1 for key, value in data.items()}


class AddOne:
    def __call__(self, *values: Any) -> Any:
        return tuple(v + 1 for v in values) if len(values) > 1 else values[0] + 1


class Double:
    def __call__(self, *values: Any) -> Any:
        return tuple(v * 2 for v in values) if len(values) > 1 else values[0] * 2


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The containers, where the libraries keep theirs."""
    for path, name, cls in (
        ("torchvision.transforms.transforms", "Compose", Compose),
        ("torchvision.transforms.v2._container", "Compose", ComposeV2),
        ("albumentations.core.transforms_interface", "BasicTransform", BasicTransform),
    ):
        module = ModuleType(path)
        setattr(module, name, cls)
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.setattr(transforms, "spent", {})
    monkeypatch.setattr(transforms, "_containers", set())
    TRANSFORMS.apply(None)
    yield
    TRANSFORMS.undo()


def test_each_transform_of_a_compose_is_timed_by_name() -> None:
    assert Compose([AddOne(), Double(), AddOne()])(3) == 9
    assert {name: calls for name, (_, calls) in transforms.spent.items()} == {"AddOne": 2, "Double": 1}
    assert all(seconds > 0 for seconds, _ in transforms.spent.values())


def test_a_compose_inside_another_is_not_counted_on_top_of_its_transforms() -> None:
    assert Compose([AddOne(), Compose([Double(), AddOne()])])(3) == 9
    assert {name: calls for name, (_, calls) in transforms.spent.items()} == {"AddOne": 2, "Double": 1}


def test_the_second_kind_takes_one_value_or_several() -> None:
    compose = ComposeV2([AddOne(), Double()])
    assert compose.forward(3) == 8
    assert compose.forward(3, 4) == (8, 10)


def test_albumentations_transforms_are_timed_one_by_one() -> None:
    assert BasicTransform()(image=1) == {"image": 2}
    assert transforms.spent["BasicTransform"][1] == 1


def test_wrapping_twice_times_once() -> None:
    TRANSFORMS.apply(None)
    Compose([AddOne()])(1)
    assert transforms.spent["AddOne"][1] == 1


def test_an_exception_comes_through_and_its_time_counts() -> None:
    class Broken:
        def __call__(self, value: Any) -> Any:
            raise KeyError("colour")

    with pytest.raises(KeyError, match="colour"):
        Compose([Broken()])(1)
    assert transforms.spent["Broken"][1] == 1
