"""A head or server that does not answer is an error after seconds, not after the minutes of TCP."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolkit import inventory
from toolkit.commands import lease_shared, lease_static
from toolkit.lease import LeaseError

SSH = SimpleNamespace(key_file=None, port=22, extra_args=("-o", "ConnectTimeout=30"), user="ops", host="192.0.2.1")
HEAD = SimpleNamespace(name="head", groups=("heads",), ssh=SSH)


def words_of(given: list[str]) -> list[str]:
    """What stands as an option, in its order: of two the first is heeded by ssh."""
    return [word for word in given if word.startswith(("ConnectTimeout=", "ServerAliveInterval="))]


EXPECTED = ["ConnectTimeout=30", "ConnectTimeout=10", "ServerAliveInterval=10"]


def test_the_head_is_given_up_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def refused(where: list[str], _: Any) -> int:
        asked.append(where)
        return 255

    monkeypatch.setattr(lease_shared, "pass_on", refused)
    monkeypatch.setattr(inventory, "read_inventory", lambda _: SimpleNamespace(nodes=[HEAD]))
    with pytest.raises(LeaseError, match="does not answer by ssh"):
        lease_shared.on_head(Path("site"), ["gpus"])
    assert words_of(asked[0]) == EXPECTED


def test_a_server_is_given_up_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def refused(words: list[str], **_: Any) -> SimpleNamespace:
        asked.append(words)
        return SimpleNamespace(returncode=255, stderr=b"", stdout=b"")

    monkeypatch.setattr(lease_static.bounded, "run", refused)
    with pytest.raises(LeaseError):
        lease_static._ssh(HEAD, "true")
    assert words_of(asked[0]) == EXPECTED
