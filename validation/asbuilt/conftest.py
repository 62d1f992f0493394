"""Which checks concern which node, and telling a check that could not be run from one that failed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from testinfra.utils.ansible_runner import AnsibleRunner  # type: ignore[import-untyped]

from validation.asbuilt.quiet import between_marks
from validation.asbuilt.resolved import resolved
from validation.asbuilt.site import Host, Site
from validation.asbuilt.unreached import why, words_of
from validation.measures.asbuilt.checks import GROUPS, checks_of
from validation.measures.asbuilt.parse import COULD_NOT_RUN

_FOLDER = Path(__file__).resolve().parent
_answered: dict[str, str] = {}
"""Node -> why no command can be run on it, "" where one could."""
_noisy: set[str] = set()
"""Nodes whose login files print something beside what a command prints."""


def pytest_configure(config: pytest.Config) -> None:
    """Give testinfra the inventory with its templates resolved: ansible-inventory, which it asks, leaves them alone."""
    inventory = config.getoption("ansible_inventory", default=None)
    found = resolved(Path(inventory)) if inventory else None
    if found is not None:
        AnsibleRunner.get_runner(inventory).inventory = found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep of the checks of this folder those that concern the node's groups; a check beyond the list concerns all."""
    every = set(checks_of(GROUPS))
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        host = getattr(item, "callspec", None) and item.callspec.params.get("_testinfra_host")  # type: ignore[attr-defined]
        name = f"{item.path.name}::{item.name.partition('[')[0]}"
        ours = item.path.parent == _FOLDER and host is not None and hasattr(host.backend, "ansible_runner")
        if ours and name in every:
            site = Site(host)
            concerns = name in checks_of([group for group in GROUPS if site.in_group(group)])
            (kept if concerns else left).append(item)
        else:
            kept.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note in the JUnit file that a check ended by something else than a failed assertion: it found out nothing."""
    excinfo = call.excinfo
    if excinfo is not None and not excinfo.errisinstance((AssertionError, pytest.skip.Exception)):
        said = words_of(excinfo.value, _inventory(item.config))
        item.user_properties.append((COULD_NOT_RUN, said[:400]))
    return (yield)


def _inventory(config: pytest.Config) -> str:
    return str(config.getoption("ansible_inventory", default=None) or "")


@pytest.fixture(autouse=True)
def _reached(host: Host, pytestconfig: pytest.Config) -> None:
    """One try for each node: where it does not answer, its checks end at once."""
    name = host.backend.get_pytest_id()
    if name not in _answered:
        try:
            tried = host.run("true")
            if tried.stdout:
                _noisy.add(name)
            _answered[name] = why(tried, _inventory(pytestconfig)) if tried.rc else ""
        except RuntimeError as fault:
            _answered[name] = words_of(fault, _inventory(pytestconfig))
    if _answered[name]:
        raise ConnectionError(_answered[name])
    if name in _noisy:
        between_marks(host.backend)


@pytest.fixture(scope="module")
def site(host: Host) -> Site:
    """What the inventory says of the node."""
    return Site(host)
