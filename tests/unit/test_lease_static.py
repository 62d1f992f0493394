"""A static lease as the administrator asks for it: how much a part is says the server that gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.commands import lease_static
from toolkit.lease import SERVER_CONF, LeaseError


def test_the_server_counts_the_part_and_what_it_rounded_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, Any] = {
        "job": "s1",
        "deadline": None,
        "token": "t",
        "what": "1 x 0.329 GPU",
        "rounding": "you get 46",
    }
    answers = {
        f"sudo -n cat {SERVER_CONF}": {"address": "10.0.0.1", "shards_per_gpu": None},
        "ip -json -4 route get 10.0.0.1": [{"prefsrc": "10.0.0.2"}],
        f"sudo -n {lease_static.PROGRAM} start": said,
    }
    sent = {}

    def ssh(_node: Any, words: str, stdin: str = "") -> str:
        sent[words] = stdin
        return json.dumps(answers.get(words, ""))

    monkeypatch.setattr(lease_static, "_node", lambda _inventory, name: name)
    monkeypatch.setattr(lease_static, "_ssh", ssh)
    granted = lease_static.request(None, "gpu1", "client1", "alice", 1, "1/3", 1.0)
    wanted = json.loads(sent[f"sudo -n {lease_static.PROGRAM} start"])
    assert (wanted["part"], wanted["count"], wanted["clients"]) == ("1/3", 1, ["10.0.0.2"])
    lines = granted.words.splitlines()
    assert lines[0].startswith("lease gpu1-s1: 1 x 0.329 GPU until ")
    assert (lines[1], granted.until) == ("you get 46", None)
    assert (granted.data["lease"], granted.data["note"]) == ("gpu1-s1", "you get 46")
    (kept,) = (text for words, text in sent.items() if "install -m 0400" in words)
    assert json.loads(kept) == {"job": "s1", "deadline": None, "token": "t"}


def test_a_released_lease_leaves_no_token_with_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"lease": "s1", "host": "client1"}]
    asked: list[tuple[str, str]] = []

    def ssh(node: Any, words: str, stdin: str = "") -> str:
        asked.append((node, words))
        if node == "client1" and down:
            raise LeaseError("client1: Connection timed out")
        return json.dumps(listed if words.endswith("list") else {})

    monkeypatch.setattr(lease_static, "_node", lambda _inventory, name: name)
    monkeypatch.setattr(lease_static, "_ssh", ssh)
    down = False
    assert lease_static.release(None, "gpu1", "gpu1-s1") == "lease gpu1-s1: released"
    ended, removed = asked[-2:]
    assert ended == ("gpu1", f"sudo -n {lease_static.PROGRAM} end s1"), "the server first"
    assert removed == ("client1", f"sudo -n rm -f {lease_static.FOLDER}/gpu1-s1.json")
    down = True
    assert "its file on client1 stays there" in lease_static.release(None, "gpu1", "s1")
    for name in ("s1; reboot", "../s1", "41"):
        with pytest.raises(LeaseError, match="static leases have names like"):
            lease_static.release(None, "gpu1", name)
