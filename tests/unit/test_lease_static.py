"""A static lease as the administrator asks for it: how much a part is says the server that gives it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import lease_forms
from toolkit.commands import lease_static
from toolkit.lease import SERVER_CONF, LeaseError
from toolkit.lease.client.keep_request import KeepRequest
from toolkit.lease.endpoint import parse
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.static_forms import StaticGrant, StaticLease, StaticWish, leases_text, parse_wish


def test_the_server_counts_the_part_and_what_it_rounded_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = lease_forms.endpoint(job="s1", mode="hold")
    conf = {"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e", "shards_per_gpu": None}
    answers = {
        f"sudo -n cat {SERVER_CONF}": json.dumps(conf),
        "ip -json -4 route get 10.0.0.1": json.dumps([{"prefsrc": "10.0.0.2"}]),
        f"sudo -n {lease_static.PROGRAM} start": StaticGrant(endpoint, "1 x 0.329 GPU", "you get 46").text(),
    }
    sent = {}

    def ssh(_node: Any, words: str, stdin: str = "") -> str:
        sent[words] = stdin
        return answers.get(words, "")

    monkeypatch.setattr(lease_static, "_node", lambda _inventory, name: SimpleNamespace(name=name))
    monkeypatch.setattr(lease_static, "_ssh", ssh)
    granted = lease_static.request(
        KeepRequest(LeaseWish(1, "1/3", seconds=1), static="gpu1", client="client1", user="alice")
    )
    wish = parse_wish(sent[f"sudo -n {lease_static.PROGRAM} start"])
    assert wish == StaticWish(1, "1/3", ("10.0.0.2",), "client1", 1)
    lines = granted.words.splitlines()
    assert lines[0].startswith("lease gpu1-s1: 1 x 0.329 GPU until ")
    assert (lines[1], granted.until) == ("you get 46", None)
    assert (granted.lease, granted.note) == ("gpu1-s1", "you get 46")
    (kept,) = (text for words, text in sent.items() if "install -m 0400" in words)
    assert parse(kept) == endpoint


def test_a_released_lease_leaves_no_token_with_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = leases_text([StaticLease("s1", "1 x 1 GPU", "gpu1:0", "client1", None)])
    asked: list[tuple[str, str]] = []

    def ssh(node: Any, words: str, stdin: str = "") -> str:
        asked.append((node.name, words))
        if node.name == "client1" and down:
            raise LeaseError("client1: Connection timed out")
        return listed if words.endswith("list") else "{}"

    monkeypatch.setattr(lease_static, "_node", lambda _inventory, name: SimpleNamespace(name=name))
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
