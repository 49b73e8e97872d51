"""Which loaders of a process have one number."""

from __future__ import annotations

from unstarve.collect.loader_numbers import LoaderNumbers


class Loader:
    pass


def test_a_loader_keeps_its_number_also_when_its_dataset_grows() -> None:
    numbers, loader, other = LoaderNumbers(), Loader(), Loader()
    assert numbers.number("a", loader, 10, anew=False) == (0, True)
    assert numbers.number("a", other, 10, anew=False) == (1, True)
    assert numbers.number("a", loader, 11, anew=False) == (0, False)


def test_a_loader_created_anew_takes_the_number_of_the_last_one_with_such_a_dataset() -> None:
    numbers = LoaderNumbers()
    for _ in range(3):
        found = [numbers.number("a", Loader(), length, anew=False)[0] for length in (50, 8)]
        assert found == [0, 1]
    assert numbers.number("b", Loader(), 50, anew=False) == (2, True)


def test_one_that_still_exists_is_replaced_only_if_its_maker_creates_it_anew() -> None:
    numbers, first, second = LoaderNumbers(), Loader(), Loader()
    numbers.number("a", first, 10, anew=False)
    assert numbers.number("a", second, 10, anew=False) == (1, True)
    assert numbers.number("a", Loader(), 10, anew=True) == (0, False)


def test_lengths_that_vary_from_epoch_to_epoch_do_not_make_a_new_loader_each_time() -> None:
    numbers = LoaderNumbers()
    found = {numbers.number("a", Loader(), length, anew=False)[0] for length in range(100)}
    assert len(found) == 4
