"""The user slurm of a node with EL, whose packages do not make it: a teardown removes it where the role has made it,
and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.support import one_reboot
from tests.support.one_reboot import Json, calls

pytestmark = pytest.mark.systems
MARK = "/var/lib/elastic-ai/ledger/slurm.user"
LEDGERS = {f"/var/lib/elastic-ai/ledger/slurm.{kind}.json": '{"packages": ["slurm"]}' for kind in ("packages", "files")}


def users(folder: Path, there: Json, playbook: str, tag: str) -> list[Json]:
    """What a check run would do with users, and with the mark of one."""
    system = one_reboot.System("el9", "xe9680", one_reboot.make.RAILS[0])
    recording = one_reboot.arrived(system)
    for part, more in there.items():
        recording["modules"]["node_state"][part] |= more
    hosts = one_reboot.inventory(system, folder / "site", recording, keys(folder))
    one_reboot.check(folder, {"site": hosts}, "--tags", tag, playbook=playbook)
    places = (MARK, str(Path(MARK).parent))
    done = [call for call in calls(hosts) if call["module"] == "user" or call["args"].get("path") in places]
    return [{"module": call["module"], "state": call["args"].get("state", "present")} for call in done]


MADE = [  # the mark's folder is not there yet where the site has installed Slurm itself
    {"module": "file", "state": "directory"},
    {"module": "file", "state": "touch"},
    {"module": "user", "state": "present"},
]
REMOVED = [{"module": "user", "state": "absent"}, {"module": "file", "state": "absent"}]


@pytest.mark.parametrize(("there", "done"), [({}, MADE), ({"users": {"slurm": True}}, [])], ids=["none", "the site's"])
def test_it_is_made_where_there_is_none_and_marked_before(tmp_path: Path, there: Json, done: list[Json]) -> None:
    assert users(tmp_path, there, "playbooks/pool.yml", "slurm") == done


@pytest.mark.parametrize(("mark", "done"), [({MARK: ""}, REMOVED), ({}, [])], ids=["the role's", "the site's"])
def test_a_teardown_removes_it_where_the_role_has_made_it(tmp_path: Path, mark: Json, done: list[Json]) -> None:
    there = {"users": {"slurm": True}, "contents": LEDGERS, "files": {**dict.fromkeys(LEDGERS, ""), **mark}}
    assert users(tmp_path, there, "playbooks/teardown.yml", "pool") == done
