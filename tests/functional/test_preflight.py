"""What preflight refuses, and that it names every reason at once; judged on observations, without a node."""

from __future__ import annotations

import copy
import errno
import os
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import ROOT, load, run
from tests.support.warm import ansible

pytestmark = pytest.mark.systems

preflight: Any = load("plugins/plugin_utils/preflight.py")
repos: Any = load("plugins/plugin_utils/repos.py")

NODE: dict[str, Any] = {
    "os": {"id": "ubuntu", "version": "24.04", "rhel_like": False},
    "architecture": "x86_64",
    "kernel": "6.8.0-87-generic",
    "kernels": ["6.8.0-87-generic", "6.8.0-85-generic"],
    "in_container": False,
    "python": "3.12.3",
    "root": True,
    "systemd": True,
    "memory_mib": 64000,
    "disks": {
        "/opt": {"existing": "/opt", "device": 1, "free_mib": 50000},
        "/var": {"existing": "/var", "device": 1, "free_mib": 50000},
        "/boot": {"existing": "/boot", "device": 2, "free_mib": 600},
    },
    "drivers": {"ens2f0": "mlx5_core"},
    "links": {"lo": ["127.0.0.1"], "eno1": ["10.0.0.11"], "ens2f0": []},
    "links_error": "",
    "network": {"running": ["systemd-networkd"], "claims": [], "networkmanager": {}},
    "jobs": [],
    "provisioned_release": "",
    "hostname": "gpu1",
    "hostname_resolves": True,
    "headers": "installable",
    "secure_boot": "disabled",
    "mok_enrolled": [],
    "sqv": False,
    "node_time_s": 1000.0,
    "answered_s": 1001.0,
    "offset_at_most_s": 0.5,
    "nouveau_loaded": False,
}
WEAK = {"fingerprint": "EB693B3035CD5710E231E123A4B469633BF863CC", "self_signature_hashes": ["SHA1"]}
STRONG = {"fingerprint": "A" * 40, "self_signature_hashes": ["SHA1", "SHA512"]}
WANTED: dict[str, Any] = {
    "name": "gpu1",
    "address": "10.0.0.11",
    "fabric_ports": [{"interface": "ens2f0", "address": "10.78.0.11/24"}],
    "fabric_mtu": 9000,
    "port_manager": "systemd-networkd",
    "release": "current",
    "change_under_jobs": False,
    "supported_os": ["debian 12", "ubuntu 24.04", "rocky 9"],
    "architectures": ["x86_64"],
    "kernel_min": "5.10",
    "python_min": "3.9",
    "memory_min_mib": 2000,
    "disk_min_mib": {"/opt": 4000, "/var": 4000, "/boot": 300},
    "scheduled": True,
    "confined": True,
    "time_offset_max_s": 30,
    "addresses": {"10.0.0.11": ["gpu1"]},
    "stack": {"nvidia_driver": {"provider": "cuda"}, "ofed": {"provider": "doca"}},
    "gpu_server": True,
    "user_space_only": False,
    "repository_keys": {"cuda": [WEAK], "docker": [STRONG]},
    "undeclared_keys": [],
}


def reasons(observed: dict[str, Any], wanted: dict[str, Any] | None = None) -> list[str]:
    found: list[str] = preflight.preflight_reasons({**NODE, **observed}, {**WANTED, **(wanted or {})})
    return found


def test_a_fitting_node_is_not_refused() -> None:
    assert reasons({}) == []


FULL: dict[str, Any] = {"existing": "/", "device": 3, "free_mib": 9}
PLANTED: list[tuple[dict[str, Any], str]] = [
    ({"os": {"id": "ubuntu", "version": "20.04", "rhel_like": False}}, "operating system is ubuntu 20.04"),
    ({"architecture": "ppc64le"}, "architecture is ppc64le"),
    ({"kernel": "4.15.0-20-generic", "kernels": ["4.15.0-20-generic"]}, "at least 5.10 is needed"),
    ({"python": "3.6.9"}, "Python is 3.6.9"),
    ({"root": False}, "not root"),
    ({"systemd": False}, "systemd is not the init"),
    ({"memory_mib": 500}, "memory is 500 MiB"),
    ({"disks": dict.fromkeys(WANTED["disk_min_mib"], FULL)}, "/ has 9 MiB free"),
    ({"disks": {**NODE["disks"], "/boot": {**FULL, "existing": "/boot"}}}, "remove kernels that do not run"),
    ({"disks": {"/opt": NODE["disks"]["/opt"]}}, "how much room /var has was not observed"),
    ({"drivers": {"ens2f0": "cdc_ether"}}, "is the USB network function of the node's BMC (driver cdc_ether)"),
    ({"hostname": "localhost"}, "hostnamectl hostname gpu1"),
    ({"hostname_resolves": False}, "does not resolve"),
    ({"links_error": "no such command"}, "cannot list the network interfaces"),
    ({"links": {"lo": [], "eno1": ["10.0.0.11"]}}, "fabric port ens2f0 does not exist; interfaces there: eno1"),
    ({"links": {"ens2f0": ["10.0.0.11"]}}, "carries the management address"),
    ({"links": {"ens2f0": [], "eno2": ["10.78.0.11"]}}, "is already on interface eno2"),
    ({"node_time_s": 1100.0}, "at least 99.0 s ahead of"),
    ({"offset_at_most_s": -100.0}, "at least 100.0 s behind"),
    ({"kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}, "6.8.0-90-generic is the newest installed: reboot"),
    ({"headers": "missing"}, "whose headers are neither here nor in the package lists"),
    ({"secure_boot": "enabled"}, "mokutil --import /var/lib/shim-signed/mok/MOK.der"),
    ({"jobs": ["17", "23"], "provisioned_release": "older"}, "jobs run here (17, 23)"),
    ({"sqv": True}, "of repository cuda has only SHA-1 self-signatures"),
]


def test_a_node_that_cannot_run_the_engine_is_told_before_anything_is_installed() -> None:
    engine = {
        "engine": "lupine",
        "release": "1.0.0-cuda13.0",
        "cuda": "13.0",
        "machine": "x86_64",
        "server": {"glibc": "2.38"},
        "client": {"glibc": "2.35"},
    }
    server: dict[str, Any] = {"engine": engine, "stack": {"nvidia_driver": {"version": "550.54"}}, "gpu_server": True}
    said = reasons({"glibc": "2.36"}, server)
    assert [r for r in said if "needs glibc 2.38, and the node has 2.36" in r]
    assert [r for r in said if "built for CUDA 13.0, for which the driver has to be of branch 580 or newer" in r]
    fit = {**server, "stack": {"nvidia_driver": {"version": "580.173.02"}}}
    assert not [r for r in reasons({"glibc": "2.39"}, fit) if "engine" in r]
    client = {**server, "gpu_server": False}
    assert not [r for r in reasons({"glibc": "2.36"}, client) if "engine" in r], "a client has the client alone"
    assert [r for r in reasons({"glibc": "2.34"}, client) if "needs glibc 2.35, and the node has 2.34" in r]
    assert [r for r in reasons({"architecture": "aarch64"}, client) if "is for x86_64, and the node is aarch64" in r]
    assert not [r for r in reasons({}, client) if "engine" in r], "a node that was recorded before glibc was read"


def test_what_an_archive_needs_is_read_on_the_controller(tmp_path: Path) -> None:
    remoting = load("plugins/plugin_utils/remoting.py")
    (tmp_path / "engine.json").write_text('{"engine": "lupine", "cuda": "13.0"}')
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "engine.json", "engine.json")
    assert remoting.engine_described(str(tmp_path / "a.tar.gz")) == {"engine": "lupine", "cuda": "13.0"}
    (tmp_path / "b.tar.gz").write_bytes((tmp_path / "a.tar.gz").read_bytes()[:60])
    for other in (
        "",
        "https://example.org/a.tar.gz",
        tmp_path / "none",
        tmp_path / "engine.json",
        tmp_path / "b.tar.gz",
    ):
        assert remoting.engine_described(str(other)) == {}, other


@pytest.mark.parametrize(("observed", "named"), PLANTED, ids=[p[1] for p in PLANTED])
def test_what_does_not_fit_is_refused_with_what_to_do(observed: dict[str, Any], named: str) -> None:
    assert [r for r in reasons(observed) if named in r] != []


def test_all_reasons_come_at_once() -> None:
    observed = {"root": False, "memory_mib": 500, "secure_boot": "enabled", "sqv": True, "hostname_resolves": False}
    assert len(reasons(observed)) == 5


def test_a_key_with_a_strong_self_signature_is_accepted_and_gpgv_is_not_asked() -> None:
    assert reasons({"sqv": True}, {"repository_keys": {"docker": [STRONG]}}) == []
    assert reasons({"sqv": False}, {"repository_keys": {"cuda": [WEAK]}}) == []


def test_a_repository_whose_key_nobody_declared_is_refused_before_anything_is_installed() -> None:
    """DOCA's repository for EL 9: which key signs it is on no public record."""
    catalogue = yaml.safe_load((ROOT / "roles/repos/vars/main.yml").read_text(encoding="utf-8"))["__repos_catalogue"]

    def undeclared(system: str, **declared: str) -> list[str]:
        found: list[str] = repos.repos_undeclared(["cuda", "doca", "site"], catalogue, system, declared)
        return found

    assert undeclared("el9") == ["doca", "site"]
    assert undeclared("el9", doca="A" * 40, site="B" * 40) == undeclared("ubuntu2404", site="B" * 40) == []
    (reason,) = reasons({}, {"undeclared_keys": undeclared("el9", site="B" * 40)})
    assert "repository 'doca'" in reason
    assert "set repos_fingerprints: {doca: ...}" in reason


@pytest.mark.parametrize(
    "unbuilt",
    [
        {"gpu_server": False, "stack": {"nvidia_driver": {"provider": "cuda"}, "ofed": {"provider": "inbox"}}},
        {"stack": {"nvidia_driver": {"provider": "canonical"}, "ofed": {"provider": "inbox"}}},
        {"stack": {"nvidia_driver": {"provider": "distribution"}, "ofed": {"provider": "inbox"}}},
        {"user_space_only": True, "stack": {"nvidia_driver": {"provider": "cuda"}}},
    ],
)
def test_kernel_headers_and_secure_boot_matter_only_where_modules_are_built(unbuilt: dict[str, Any]) -> None:
    kernel = {"kernels": ["6.8.0-90-generic"], "headers": "missing", "secure_boot": "enabled"}
    assert len(reasons(kernel)) == 3
    assert reasons(kernel, unbuilt) == []
    assert reasons({**kernel, "in_container": True}) == []


def test_a_bmcs_address_on_a_fabric_port_is_refused() -> None:
    (reason,) = reasons({}, {"fabric_ports": [{"interface": "ens2f0", "address": "169.254.1.2/24"}]})
    assert "address 169.254.1.2/24 is link-local, as BMCs have:" in reason


@pytest.mark.parametrize("address", ["2001:db8::31", "fe80::1%eno1"])
def test_an_ipv6_management_address_is_refused_in_one_sentence(address: str) -> None:
    (reason,) = reasons({}, {"address": address, "addresses": {address: ["gpu1"]}})
    assert f"its management address {address} is an IPv6 one" in reason
    assert "give ansible_host the node's IPv4 address" in reason


@pytest.mark.parametrize(
    "address", ["root@10.0.0.1", "10.0.0.1:22", "10.0.0.1/24", "10.0.0.1 ", "010.0.0.1", "3232235777", None]
)
def test_what_is_neither_an_address_nor_a_name_is_refused(address: str | None) -> None:
    reason = "; ".join(reasons({}, {"address": address, "addresses": {}}))
    assert f"its ansible_host {address!r} is neither an IPv4 address nor a name" in reason
    assert "neither" not in "; ".join(reasons({}, {"address": "gpu-1_a.example.com"}))


def test_an_address_that_roles_would_not_find_is_refused() -> None:
    (reason,) = reasons({}, {"ssh_host": "10.0.0.11"})
    assert "written as ansible_ssh_host" in reason
    assert "write it as ansible_host" in reason


def test_a_node_that_a_name_reaches_over_ipv6_alone_is_refused_too() -> None:
    links = {"lo": ["127.0.0.1"], "eno1": [], "ens2f0": ["10.78.0.11"]}
    (reason,) = reasons({"links": links}, {"address": "gpu1.example.net"})
    assert "it has no IPv4 address but those of fabric ports" in reason
    assert reasons({"links": {**links, "eno1": ["10.0.0.11"]}}, {"address": "gpu1.example.net"}) == []


def test_drivers_of_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    module: Any = load("plugins/modules/node_preflight.py")
    (tmp_path / "bus/usb/drivers/cdc_ether").mkdir(parents=True)
    (tmp_path / "class/net/idrac/device").mkdir(parents=True)
    (tmp_path / "class/net/lo").mkdir()
    (tmp_path / "class/net/idrac/device/driver").symlink_to(tmp_path / "bus/usb/drivers/cdc_ether")
    assert module.read_drivers(tmp_path) == {"idrac": "cdc_ether"}


def test_jobs_that_would_see_all_gpus_are_refused_unless_accepted() -> None:
    (reason,) = reasons({}, {"confined": False})
    assert "slurm_unconfined_jobs: true" in reason
    for other in ({"scheduled": False}, {"gpu_server": False}, {"confined": True}):
        assert reasons({}, {"confined": False, **other}) == []
    assert reasons({"in_container": True}, {"confined": False}) == []


def test_another_release_is_refused_only_under_jobs_and_unasked() -> None:
    busy = {"jobs": ["17"], "provisioned_release": "older"}
    (reason,) = reasons(busy)
    assert "scontrol update NodeName=gpu1 State=DRAIN Reason=upgrade" in reason
    for other in ({"jobs": []}, {"provisioned_release": "current"}):
        assert reasons({**busy, **other}) == []
    assert reasons(busy, {"change_under_jobs": True}) == []


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


def test_an_enrolled_key_satisfies_secure_boot() -> None:
    assert reasons({"secure_boot": "enabled", "mok_enrolled": ["/var/lib/shim-signed/mok/MOK.der"]}) == []


def test_the_signed_driver_is_offered_on_ubuntu_alone() -> None:
    rocky = {"os": {"id": "rocky", "version": "9.6", "rhel_like": True}, "secure_boot": "enabled"}
    assert "canonical" in reasons({"secure_boot": "enabled"})[0]
    assert "canonical" not in reasons(rocky)[0]


def test_a_recorded_clock_is_not_judged() -> None:
    recorded = copy.deepcopy(NODE)
    del recorded["answered_s"]
    assert preflight.preflight_reasons({**recorded, "node_time_s": 9e9}, WANTED) == []


def test_an_address_declared_twice_is_refused_on_the_nodes_that_declare_it() -> None:
    twice = {"10.0.0.11": ["gpu1", "gpu2"], "10.0.0.12": ["gpu3", "gpu4"]}
    assert reasons({}, {"addresses": twice}) == [
        "address 10.0.0.11 is declared more than once in the inventory: gpu1, gpu2"
    ]


def test_notes_stop_nothing() -> None:
    noted = {**NODE, "nouveau_loaded": True, "headers": "unknown"}
    assert preflight.preflight_reasons(noted, WANTED) == []
    assert len(preflight.preflight_notes(noted, WANTED)) == 2


def test_a_system_without_monitoring_is_told_before_anything_is_installed() -> None:
    el9 = {**NODE, "os": {"id": "rocky", "version": "9.6", "rhel_like": True}}
    assert [note for note in preflight.preflight_notes(el9, WANTED) if note.startswith("no monitoring: ")] != []
    assert [note for note in preflight.preflight_notes(NODE, WANTED) if "monitoring" in note] == []


def test_the_observed_system_gets_the_same_key_as_gathered_facts() -> None:
    os_key = load("plugins/plugin_utils/os.py").os_key
    keys = {
        os_key(preflight.preflight_facts({"os": {"id": i, "version": v, "rhel_like": r}}))
        for i, v, r in (
            ("debian", "12", False),
            ("ubuntu", "24.04", False),
            ("rocky", "9.6", True),
            ("rhel", "9.6", True),
        )
    }
    assert keys == {"debian12", "ubuntu2404", "el9"}


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


IMAGE_HOSTS = """
all:
  vars:
    stack_release: current
    ansible_connection: local
    ansible_become: false
    ansible_python_interpreter: %s
    preflight_disk_min_mib: {/var: 1}
    preflight_image_min_mib: {head: 88888888, node: 77777777}
  children:
    heads: {hosts: {head: {}}}
    gpu_servers: {hosts: {server: {bom: {gpu_count: %d}}}}
"""


@pytest.mark.parametrize(
    ("gpus", "options", "needed"),
    [
        (8, [], {"88888888", "77777777"}),
        (8, ["-e", "horovod_image=registry.example/training:1"], {"77777777"}),
        (0, [], set()),
    ],
)
def test_a_training_image_for_gpus_needs_its_room(
    tmp_path: Path, gpus: int, options: list[str], needed: set[str]
) -> None:
    """Most of it on the head, which makes it and keeps it."""
    (tmp_path / "hosts.yml").write_text(IMAGE_HOSTS % (sys.executable, gpus))
    ran = ansible("ansible-playbook", "playbooks/preflight.yml", "-i", str(tmp_path), *options)
    text = " ".join(ran.stdout.split())
    assert set(re.findall(r"MiB free; (\d+) MiB is needed", text)) == needed, text


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
