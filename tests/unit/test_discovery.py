"""What measurements bring is found by their names, and a name stands for one thing."""

from __future__ import annotations

import pytest

from validation.base.discovery import Discovered
from validation.judging.methods import METHODS, method
from validation.kinds import KINDS
from validation.plan.suites import SUITES


def test_entries_are_looked_for_once_and_when_the_first_is_asked_for() -> None:
    asked: list[int] = []

    def find() -> list[tuple[str, int]]:
        asked.append(1)
        return [("b", 2), ("a", 1)]

    found = Discovered(find)
    assert asked == []
    assert (list(found), found["a"], len(found), "c" in found, asked) == (["b", "a"], 1, 2, False, [1])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two measurements bring the name 'a'"):
        len(Discovered(lambda: [("a", 1), ("a", 2)]))


def test_a_method_that_is_declared_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.judging.methods._declared", [(name, one) for name, one in METHODS.items()])
    method("value", "another")(METHODS["value"].judge)
    with pytest.raises(ValueError, match="'value'"):
        len(Discovered(METHODS._find))


def test_each_has_its_entries() -> None:
    assert all((KINDS, METHODS, SUITES))
    assert next(iter(SUITES)) == "preflight"
