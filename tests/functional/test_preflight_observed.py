"""What preflight reads of a node, and its table of all nodes."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load, run
from tests.support.preflight_case import NODE, WANTED, preflight, reasons
from tests.support.warm import ansible

pytestmark = pytest.mark.systems


def test_drivers_of_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    module: Any = load("plugins/modules/node_preflight.py")
    (tmp_path / "bus/usb/drivers/cdc_ether").mkdir(parents=True)
    (tmp_path / "class/net/idrac/device").mkdir(parents=True)
    (tmp_path / "class/net/lo").mkdir()
    (tmp_path / "class/net/idrac/device/driver").symlink_to(tmp_path / "bus/usb/drivers/cdc_ether")
    assert module.read_drivers(tmp_path) == {"idrac": "cdc_ether"}


def test_ipv6_addresses_of_the_link_alone_reach_no_time_server() -> None:
    module: Any = load("plugins/modules/node_preflight.py")
    here = [("inet", "10.0.0.11", "global"), ("inet6", "fe80::1", "link"), ("inet6", "::1", "host")]
    links = [{"ifname": "eno1", "addr_info": [{"family": f, "local": a, "scope": s} for f, a, s in here]}]
    assert module.wide_ipv6(links) == []
    links[0]["addr_info"].append({"family": "inet6", "local": "2001:db8::11", "scope": "global"})
    assert module.wide_ipv6(links) == ["2001:db8::11"]


def test_jobs_and_release_are_read_from_the_node(tmp_path: Path) -> None:
    module: Any = load("plugins/modules/node_preflight.py")
    for number, title in ((9, "slurmstepd: [123.batch]"), (10, "slurmstepd: [123.0]"), (11, "/usr/sbin/slurmd\0-D")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / f"{number}/cmdline").write_text(title, encoding="utf-8")
    assert module.read_jobs(tmp_path, tmp_path / "none") == ["123"]
    record = tmp_path / "provisioned.json"
    assert module.read_release(record) == ""
    record.write_text('{"release": "current", "results": {}}', encoding="utf-8")
    assert module.read_release(record) == "current"


def observe(sysfs: Path) -> dict[str, Any]:
    wanted = {"controller_time_s": 0, "disk_paths": ["/nonexistent/x"], "sysfs_root": str(sysfs)}
    return run("node_preflight", wanted)


def test_the_module_observes_what_the_decision_needs(tmp_path: Path) -> None:
    observed = observe(tmp_path)
    assert not observed.get("failed"), observed
    own = {"kernel", "kernels", "in_container", "answered_s", "nouveau_loaded"}  # of node_state and of the role
    assert set(NODE) - own <= set(observed)
    assert observed["disks"]["/nonexistent/x"]["existing"] == "/"
    assert observed["secure_boot"] == "unsupported"


@pytest.mark.parametrize(
    ("value", "state"), [(b"\x06\x00\x00\x00\x01", "enabled"), (b"\x06\x00\x00\x00\x00", "disabled")]
)
def test_secure_boot_is_read_from_the_firmwares_variable(tmp_path: Path, value: bytes, state: str) -> None:
    variables = tmp_path / "firmware/efi/efivars"
    variables.mkdir(parents=True)
    assert observe(tmp_path)["secure_boot"] == "disabled"
    (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(value)
    assert observe(tmp_path)["secure_boot"] == state


HOSTS = """
all:
  vars: {stack_release: current, ansible_python_interpreter: %s, preflight_disk_min_mib: {/: 1}}
  children:
    heads:
      hosts:
        here: {ansible_connection: local, ansible_become: false, preflight_memory_min_mib: 99999999}
    clients:
      hosts:
        gone: {ansible_host: 127.0.0.1, ansible_port: 9}
        mute: {ansible_connection: local, ansible_become: false, ansible_python_interpreter: /nowhere/python}
"""


def test_a_node_that_does_not_answer_hides_no_others_findings(tmp_path: Path) -> None:
    """The first unreachable node used to end the play before any other had been looked at."""
    (tmp_path / "hosts.yml").write_text(HOSTS % sys.executable)
    ran = ansible("ansible-playbook", "playbooks/preflight.yml", "-i", str(tmp_path))
    text = " ".join(ran.stdout.split())
    assert ran.returncode != 0
    assert "here cannot be provisioned: " in text
    assert "at least 99999999 MiB is needed" in text
    assert "gone cannot be provisioned: does not answer: " in text
    assert "mute cannot be provisioned: cannot be read: " in text
    assert "TASK [preflight : Show every node's findings]" in ran.stdout


def test_why_a_node_could_not_be_read_has_its_cure() -> None:
    gone = preflight.preflight_unread([{"unreachable": True, "msg": "Failed to connect:\n timed out."}], {})
    assert gone == ["does not answer: Failed to connect: timed out: see that it is on, and that ssh reaches it"]
    (asks,) = preflight.preflight_unread([{}], {"msg": "Missing sudo password"})
    assert asks.endswith("allow sudo without a password, or set ansible_become_password in a vault")
    assert preflight.preflight_unread([{}, {"skipped": True}], {}) == []


def test_the_table_names_each_node_once() -> None:
    found = {
        "a": {"preflight_reasons": ["x", "y"]},
        "bb": {"preflight_reasons": []},
        "ccc": {"preflight_reasons": ["z"]},
    }
    assert preflight.preflight_table(found, found) == ["a    x", "     y", "ccc  z"]
    assert preflight.preflight_table({"bb": found["bb"]}, ["bb"]) == []


def test_a_tuned_that_may_set_the_governor_otherwise_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (note,) = preflight.preflight_notes({**NODE, "tuned_profile": "balanced"}, WANTED)
    assert "tuned runs with profile balanced" in note
    assert "systemctl disable --now tuned" in note
    assert reasons({"tuned_profile": "balanced"}) == []
    for fine in ("", "throughput-performance", "virtual-guest latency-performance"):
        assert preflight.preflight_notes({**NODE, "tuned_profile": fine}, WANTED) == []
    assert preflight.preflight_notes(NODE, WANTED) == []  # recorded by an earlier release

    class Module:
        code = 0

        def run_command(self, command: list[str]) -> tuple[int, str, str]:
            assert command == ["systemctl", "is-active", "--quiet", "tuned"]
            return self.code, "", ""

    module, file = load("plugins/modules/node_preflight.py"), tmp_path / "active_profile"
    assert module.read_tuned(Module(), file) == ""
    file.write_text("site balanced\n")
    assert module.read_tuned(Module(), file) == "site balanced"
    Module.code = 3
    assert module.read_tuned(Module(), file) == ""


def test_a_process_that_ends_while_it_is_looked_at_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel answers ESRCH of files of a process that has just ended, which glob passes on."""
    module: Any = load("plugins/modules/node_preflight.py")
    for pid, title in (("7", b"slurmstepd: [41.batch]"), ("8", b"sh")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(title)
    stat = os.stat

    def ended(path: Any, *rest: Any, **more: Any) -> Any:
        if str(path).endswith("8/cmdline"):
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return stat(path, *rest, **more)

    monkeypatch.setattr(os, "stat", ended)
    assert module.read_jobs(tmp_path, tmp_path / "none") == ["41"]


def test_a_port_without_a_cable_is_named_and_stops_nothing() -> None:
    links = [
        {"ifname": "ens2f0", "flags": ["NO-CARRIER", "BROADCAST", "UP"]},
        {"ifname": "eno1", "flags": ["UP", "LOWER_UP"]},
        {"ifname": "ens3f0", "flags": ["BROADCAST"]},
    ]
    carrier = load("plugins/modules/node_preflight.py").carriers(links)
    assert carrier == {"ens2f0": False, "eno1": True}
    (note,) = preflight.preflight_notes({**NODE, "carrier": carrier}, WANTED)
    assert note == "no carrier on ens2f0: look at its cable, its transceiver and the port of the switch"
    assert reasons({"carrier": carrier}) == []
    assert preflight.preflight_notes({**NODE, "carrier": {"ens2f0": True}}, WANTED) == []
