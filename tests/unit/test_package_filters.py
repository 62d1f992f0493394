"""Filters that the roles choose packages by."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load

os_key = load("plugins/plugin_utils/os.py").os_key
packages_off = load("plugins/plugin_utils/packages.py").packages_off
STATE = {"packages": {"a": "1.0", "b": "", "c": "2.0", "d": "3.0"}, "held": ["c"]}


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({"distribution": "Debian", "distribution_version": "12.11", "distribution_major_version": "12"}, "debian12"),
        ({"distribution": "Debian", "distribution_version": "13", "distribution_major_version": "13"}, "debian13"),
        ({"distribution": "Ubuntu", "distribution_version": "22.04"}, "ubuntu2204"),
        ({"distribution": "Ubuntu", "distribution_version": "24.04"}, "ubuntu2404"),
        ({"distribution": "Rocky", "os_family": "RedHat", "distribution_version": "9.6"}, "el9"),
        ({"distribution": "RedHat", "os_family": "RedHat", "distribution_major_version": "9"}, "el9"),
        ({"distribution": "Fedora", "os_family": "RedHat", "distribution_version": "42"}, "fedora42"),
        ({"distribution": "SLES", "distribution_version": "15.6"}, "sles15.6"),
    ],
)
def test_the_key_of_a_system(facts: dict[str, Any], key: str) -> None:
    assert os_key(facts) == key


@pytest.mark.parametrize(
    ("wanted", "off"),
    [
        ({"a": "", "c": "2.0"}, []),
        (["a", "b"], ["b"]),
        ({"b": ""}, ["b"]),  # missing
        ({"c": "2.1"}, ["c"]),  # of another version
        ({"d": "3.0"}, ["d"]),  # right, but nothing holds it
        ({}, []),
    ],
)
def test_packages_that_are_not_as_wanted(wanted: Any, off: list[str]) -> None:
    assert packages_off(STATE, wanted) == off


def test_a_package_that_was_not_read_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(AnsibleFilterError, match="was not asked for x"):
        packages_off(STATE, {"x": ""})
