"""What preflight refuses, and that it names every reason at once; judged on observations, without a node."""

from __future__ import annotations

import copy
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import ROOT, load
from tests.support.preflight_case import NODE, STRONG, WANTED, WEAK, preflight, reasons
from tests.support.warm import ansible

pytestmark = pytest.mark.systems
repos: Any = load("plugins/plugin_utils/repos.py")


def test_a_fitting_node_is_not_refused() -> None:
    assert reasons({}) == []


FULL: dict[str, Any] = {"existing": "/", "device": 3, "free_mib": 9}
PLANTED: list[tuple[dict[str, Any], str]] = [
    ({"os": {"id": "ubuntu", "version": "20.04", "rhel_like": False}}, "operating system is ubuntu 20.04"),
    ({"architecture": "ppc64le"}, "architecture is ppc64le"),
    ({"architecture": "aarch64"}, "supported: x86_64 (ARM servers (GH200, GB200 and GB300 with Grace among them) need"),
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
    ({"kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}, "6.8.0-90-generic is the newest installed, for which"),
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


@pytest.mark.parametrize("value", ["2001:db8::31", "::", "[::]:9090", "fd00::1%eno1"])
def test_a_service_that_would_answer_over_ipv6_is_refused_in_one_sentence(value: str) -> None:
    (reason,) = reasons({}, {"listens": {"remoting_server_address": value, "monitoring_listen": "management"}})
    assert reason.startswith(f"remoting_server_address is {value}, an IPv6 address, and services and the firewall are")
    for fine in ("", "0.0.0.0", "127.0.0.1:9090", "gpu1", "10.0.0.11"):
        assert reasons({}, {"listens": {"monitoring_prometheus_listen": fine}}) == []


@pytest.mark.parametrize("value", ["[2001:db8::1]", "2001:db8::1/64", "10.0.0.1 iburst", "10.0.0.1:123", ""])
def test_a_time_server_that_chrony_would_not_find_is_refused(value: str) -> None:
    (reason,) = reasons({"ipv6": ["2001:db8::11"]}, {"time": {"servers": [value], "allow": []}})
    assert reason.startswith(f"base_chrony_servers has {value!r}, which is neither an address nor a name")


def test_time_servers_are_asked_over_ipv6_where_the_node_has_it() -> None:
    over = {"time": {"servers": ["2001:db8::1", "2001:db8::2"], "allow": ["2001:db8::/32", "10.0.0.0/16", "all"]}}
    assert reasons({"ipv6": ["2001:db8::11"]}, over) == []
    (reason,) = reasons({"ipv6": []}, over)
    assert "its time servers (2001:db8::1, 2001:db8::2) are reached over IPv6, and it has no IPv6 address" in reason
    assert reasons({"ipv6": []}, {"time": {"servers": ["2001:db8::1", "ntp.example.net"]}}) == []
    assert reasons({}, over) == [], "recorded by an earlier release"
    (reason,) = reasons({"ipv6": []}, {"time": {"allow": ["[2001:db8::]/32"]}})
    assert reason.startswith("base_chrony_allow has '[2001:db8::]/32', which is no network")


def test_a_fabric_port_with_an_ipv6_address_alone_is_refused() -> None:
    (reason,) = reasons({}, {"fabric_ports": [{"interface": "ens2f0", "address": "fd00:80::11/64"}]})
    assert "fabric port ens2f0: address 'fd00:80::11/64' is not an IPv4 address with prefix" in reason


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


def test_a_head_without_prometheus_is_noted_before_anything_is_installed() -> None:
    el9, head = {**NODE, "os": {"id": "rocky", "version": "9.6", "rhel_like": True}}, {**WANTED, "monitors": True}
    assert [note for note in preflight.preflight_notes(el9, head) if note.startswith("no Prometheus: ")] != []
    for observed, wanted in ((el9, WANTED), (NODE, head)):
        assert [note for note in preflight.preflight_notes(observed, wanted) if "Prometheus" in note] == []


def test_the_observed_system_gets_the_same_key_as_gathered_facts() -> None:
    os_key = load("plugins/plugin_utils/os.py").os_key
    keys = {
        os_key(preflight.preflight_facts({"os": {"id": i, "version": v, "rhel_like": r}}))
        for i, v, r in (
            ("debian", "12", False),
            ("ubuntu", "24.04", False),
            ("rocky", "9.6", True),
            ("rhel", "9.6", True),
            ("almalinux", "9.6", True),
        )
    }
    assert keys == {"debian12", "ubuntu2404", "el9"}


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
