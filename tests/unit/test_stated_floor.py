"""A driver that the inventory states is held against the same security floors as those of a release."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.node_modules import ROOT, load
from validation.rules.floors import Floor, numbers
from validation.run.catalogue import load_criteria

stack: Any = load("plugins/plugin_utils/stack.py")
CURRENT = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]
DRIVER = next(c.bound.floors for c in load_criteria() if c.id == "pf.secver").components["driver"]


def notes(changes: dict[str, str], system: str = "ubuntu2604", **facts: Any) -> list[str]:
    """What preflight prints of security floors for a set with changes."""
    effective = stack.stack_effective(CURRENT[system], changes)
    return [note for note in stack.stack_notes(effective, {"os_key": system, **facts}) if "floor" in note]


def test_a_stated_driver_below_its_floor_is_printed_with_advisory_and_variable() -> None:
    floor = DRIVER.lines["595"]
    (note,) = notes({"nvidia_driver_version": "595.45.04"})
    assert note.startswith(f"NVIDIA driver 595.45.04 is below its security floor {floor.floor} ({floor.advisory}, ")
    assert "nvidia_driver_version" in note
    assert "pf.secver" in note
    (note,) = notes({"nvidia_driver_version": "580.95.05"}, "el9")  # in place of the release's
    assert f"floor {DRIVER.lines['580'].floor} " in note


def test_a_stated_driver_of_a_line_without_fixes_is_printed() -> None:
    (note,) = notes({"nvidia_driver_version": "550.54.15"})
    assert "550.54.15" in note
    assert "its line gets no fixes" in note


@pytest.mark.parametrize("version", ["", "595.71.05", "595.91.07", "610.57.04", "latest"])
def test_nothing_is_printed_of_one_at_or_above_it_or_after_all_known_lines(version: str) -> None:
    assert notes({"nvidia_driver_version": version}) == []


def test_a_branch_alone_follows_its_updates_and_is_below_nothing() -> None:
    assert notes({"nvidia_driver_version": "580"}, "el9") == []
    (note,) = notes({"nvidia_driver_version": "550"}, "el9")
    assert "its line gets no fixes" in note


def test_a_node_without_gpus_and_a_distributions_driver_are_not_held_against_it() -> None:
    assert notes({"nvidia_driver_version": "595.45.04"}, gpu_server=False) == []
    assert notes({"nvidia_driver_version": "535", "nvidia_driver_provider": "distribution"}, "debian12") == []


@pytest.mark.parametrize("system", CURRENT)
def test_no_set_of_the_release_is_printed(system: str) -> None:
    assert notes({}, system) == []


@pytest.mark.parametrize("version", [
    "470.256.02", "535.309.01", "535.308", "570.133.20", "580.159.03", "580.159.02", "590.48.01", "595.71.04",
    "600.1.2", "610.57.04",
])  # fmt: skip
def test_the_controllers_answer_is_that_of_the_validation(version: str) -> None:
    """Preflight reads the same data without the models of the validation, which take long to import for each node."""
    floor = DRIVER.of(numbers(version) or ())
    below = isinstance(floor, str) or (isinstance(floor, Floor) and not floor.reached(numbers(version) or ()))
    assert len(notes({"nvidia_driver_version": version})) == below
