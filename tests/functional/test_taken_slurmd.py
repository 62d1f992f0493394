"""A slurmd that runs already, of somebody's whose node is taken over or of an earlier run, meets a new configuration:
it is restarted once all that this names is there, and stopped where the GPUs' device files are not. A teardown has it
run as before the takeover."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.functional.test_taken_over import XE9680
from tests.support import one_reboot
from tests.support.one_reboot import Json, calls

pytestmark = pytest.mark.systems


PMIX = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
DEVICES = {f"/dev/nvidia{number}": "" for number in range(8)}
PACKAGES = dict.fromkeys(
    ("slurmctld", "slurmdbd", "slurmd", "slurm-client", "munge", "mariadb-server", "libpmix2t64"), "1"
)


def acts(folder: Path, files: dict[str, str]) -> list[str]:
    """What is done with slurmd and with what its configuration names, in this order."""
    recording = one_reboot.arrived(XE9680)
    state: Json = recording["modules"]["node_state"]
    names = ("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd")  # the machine is its own head
    state["units"] = {
        **state.get("units", {}),
        **{f"{name}.service": {"active": True, "enabled": True} for name in names},
    }
    state["packages"] = {**state.get("packages", {}), **PACKAGES}
    state["files"] = {**state.get("files", {}), **files}
    hosts = one_reboot.inventory(XE9680, folder / "site", recording, keys(folder))
    one_reboot.check(folder, {"site": hosts}, "--tags", "pool")
    done = []
    for call in calls(hosts):
        args = call["args"]
        if call["module"] == "systemd_service" and args.get("name") == "slurmd.service":
            done.append(args["state"])
        elif call["module"] == "file" and args.get("state") == "link":
            done.append("link")
    return done


def test_it_is_stopped_where_the_driver_has_made_no_device_files_yet(tmp_path: Path) -> None:
    assert acts(tmp_path, {})[0] == "stopped"


def test_it_is_restarted_once_what_its_configuration_names_is_there(tmp_path: Path) -> None:
    assert acts(tmp_path, {**DEVICES, PMIX: ""})[:2] == ["link", "restarted"]


BEFORE = "/var/lib/elastic-ai/slurm_before.json"
LEDGER = "/var/lib/elastic-ai/ledger/slurm.files.json"
SPOOL = "/var/lib/slurm/slurmd"
RAN = {"active": True, "enabled": True}
OFF = {"active": False, "enabled": False}


def theirs(folder: Path, state: Json, *options: str, playbook: str) -> list[Json]:
    """What a check run calls on the machine, of which `state` is a part."""
    recording = one_reboot.arrived(XE9680)
    for part, more in state.items():
        recording["modules"]["node_state"][part] |= more
    variables = keys(folder) | {"preflight_take_over": ["slurm", "munge"]}
    hosts = one_reboot.inventory(XE9680, folder / "site", recording, variables)
    one_reboot.check(folder, {"site": hosts}, *options, playbook=playbook)
    return calls(hosts)


@pytest.mark.parametrize(("again", "records"), [({}, True), ({LEDGER: ""}, False)], ids=["taken over", "later"])
def test_what_ran_is_recorded_once_before_anything_is_installed(tmp_path: Path, again: Json, records: bool) -> None:
    called = theirs(
        tmp_path,
        {"units": {"slurmd.service": RAN}, "files": {f"{SPOOL}/job00017": "", **again}},
        "--tags", "slurm", playbook="playbooks/pool.yml",
    )  # fmt: skip
    changing = [call for call in called if call["module"] not in ("node_state", "setup", "gather_facts")]
    written = [entry for entry in changing[0]["args"].get("files") or [] if entry["path"] == BEFORE]
    assert bool(written) == records, changing[0]
    if written:
        content = written[0]["content"]
        there = json.loads(content) if isinstance(content, str) else content
        assert there["units"]["slurmd.service"] == RAN
        assert there["units"]["slurmctld.service"] == OFF
        assert there["files"] == [f"{SPOOL}/job00017"]
        assert changing[0]["args"]["owner_role"] == "slurm_before"


@pytest.mark.parametrize("options", [(), ("--tags", "pool")], ids=["whole", "pool alone"])
def test_a_teardown_ends_with_what_ran_before(tmp_path: Path, options: tuple[str, ...]) -> None:
    before = {"munge.service": RAN, "slurmd.service": {"active": True, "enabled": False}, "slurmctld.service": OFF}
    now = {"munge.service": RAN, "slurmd.service": {"active": False, "enabled": True}}
    there = {
        "units": now,
        "contents": {BEFORE: json.dumps({"units": before, "files": [f"{SPOOL}/job00017"]})},
        "files": {f"{SPOOL}/job00017": "", f"{SPOOL}/hwloc_topo_whole.xml": ""},
    }
    called = theirs(tmp_path, there, *options, playbook="playbooks/teardown.yml")
    spooled = [call["args"]["path"] for call in called if call["module"] == "file" and SPOOL in call["args"]["path"]]
    assert spooled == [f"{SPOOL}/hwloc_topo_whole.xml"]
    acts = [
        (number, call["args"]["name"], call["args"]["state"], call["args"].get("enabled"))
        for number, call in enumerate(called)
        if call["module"] == "systemd_service" and call["args"].get("name") in before
    ]
    last = max(n for n, call in enumerate(called) if call["module"] in ("package_ledger", "package_set"))
    assert [act[1:] for act in acts] == [
        ("munge.service", "restarted", None),
        ("slurmd.service", "started", False),
    ]
    assert acts[0][0] > last, "while something is still being removed a job may come to it"
    removed = [call for call in called if call["args"].get("owner_role") == "slurm_before"]
    assert removed[-1]["args"]["remove_owned"] is True


def test_where_nothing_was_taken_over_a_teardown_starts_nothing(tmp_path: Path) -> None:
    called = theirs(tmp_path, {"units": {"munge.service": RAN}}, "--tags", "pool", playbook="playbooks/teardown.yml")
    assert [call["args"] for call in called if call["module"] == "systemd_service"] == []
