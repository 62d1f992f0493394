"""What role remoting_server tells a GPU server, which root reads: whole, or one error that names the field."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.lease import SHARDS_PER_GPU, LeaseError
from toolkit.lease.server_conf import ServerConf, read_server_conf


def test_the_servers_own_description(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    with pytest.raises(LeaseError, match="offers no leases"):
        read_server_conf(path)
    path.write_text('{"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e", "grace_s": 5}')
    assert read_server_conf(path) == ServerConf("gpu1", "10.0.0.1", (1, 2), Path("/e"), grace_s=5)
    for shards, count in (("140", 140), ("null", SHARDS_PER_GPU), ('""', SHARDS_PER_GPU), ("0", 0)):
        text = '{"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e", "shards_per_gpu": %s}'
        path.write_text(text % shards)
        assert read_server_conf(path).shards_per_gpu == count
    path.write_text('{"node": "gpu1"}')
    with pytest.raises(LeaseError, match=r"'address' is missing; run site\.yml again"):
        read_server_conf(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"node": "a b"}, {"address": "gpu 1"}, {"address": None}, {"ports": [2, 1]}, {"ports": [1]}, {"ports": "1-2"},
        {"engine_dir": "opt"}, {"engine_dir": None}, {"grace_s": "soon"}, {"grace_s": True}, {"grace_s": -1},
        {"first_s": float("nan")}, {"heartbeat_s": [5]}, {"memory_mib": None}, {"fence": "yes"},
        {"enforcement": "hope"},
        {"transport": "smoke"}, {"device_users": "root"}, {"device_users": [0]}, {"idle_minutes": []},
        {"idle_minutes": {"a": "soon"}}, {"gpu_class": 1}, {"mps_pipe": "/x\ny"}, {"shards_per_gpu": "many"},
        {"more": 1},
    ],
)  # fmt: skip
def test_what_is_no_description_of_a_server_starts_no_lease(tmp_path: Path, changes: dict[str, Any]) -> None:
    told = {"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e"} | changes
    (tmp_path / "server.json").write_text(json.dumps(told))
    with pytest.raises(LeaseError, match=r"server\.json: .*; run site\.yml again"):
        read_server_conf(tmp_path / "server.json")


def test_numbers_of_a_server_may_be_texts(tmp_path: Path) -> None:
    """As ansible-core before 2.19 makes of a template that is a number."""
    told = {"node": "gpu1", "address": "10.0.0.1", "ports": ["1", "2"], "engine_dir": "/e", "grace_s": "5",
            "first_s": "60", "memory_mib": "0", "shards_per_gpu": "140", "idle_minutes": {"users.a": "20"}}  # fmt: skip
    (tmp_path / "server.json").write_text(json.dumps(told))
    found = read_server_conf(tmp_path / "server.json")
    minutes = {"users.a": 20.0}
    assert found == ServerConf("gpu1", "10.0.0.1", (1, 2), Path("/e"), 140, grace_s=5.0, idle_minutes=minutes)


def test_what_the_role_writes_is_what_the_server_reads() -> None:
    role = yaml.safe_load((Path(__file__).parents[2] / "roles/remoting_server/vars/main.yml").read_text("utf-8"))
    assert set(role["__remoting_server_settings"]) <= {field.name for field in dataclasses.fields(ServerConf)}
