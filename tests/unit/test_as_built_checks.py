"""Each as-built check against nodes that answer from a table: it passes on a healthy one, fails on a spoilt one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_node import FakeNode, fake_host, healthy, inventory
from validation.asbuilt.site import Site, Unresolved
from validation.measures.asbuilt.checks import check_list, checks_of, names_of

GROUPS = {"head": ("heads",), "client1": ("clients",), "gpu1": ("gpu_servers",)}
EVERY = [name for entry in check_list().files for name in names_of(entry)]
Spoil = Callable[[FakeNode], Any]
Skipped = pytest.skip.Exception


def run(check: str, node: FakeNode, of: dict[str, Any] | None = None) -> None:
    """The check on the node; what it raises is the outcome."""
    file, _, function = check.partition("::")
    host = fake_host(node, of or inventory())
    getattr(importlib.import_module(f"validation.asbuilt.{file.removesuffix('.py')}"), function)(host, Site(host))


def said(beginning: str, rc: int, out: str = "") -> Spoil:
    def spoil(node: FakeNode) -> None:
        node.said = {key: value for key, value in node.said.items() if not key.startswith(beginning)}
        node.said[beginning] = (rc, out)

    return spoil


def stopped(unit: str) -> Spoil:
    return lambda node: node.stops(unit)


def disabled(unit: str) -> Spoil:
    return lambda node: node.enabled.remove(unit)


def owned(path: str, owner: str, mode: str) -> Spoil:
    return lambda node: node.files.update({path: ("key", owner, mode)})


def without(package: str) -> Spoil:
    return lambda node: node.packages.pop(package)


def other(package: str, version: str) -> Spoil:
    return lambda node: node.packages.update({package: version})


def gone(path: str) -> Spoil:
    return lambda node: node.files.pop(path)


def cut(beginning: str, old: str, new: str) -> Spoil:
    def spoil(node: FakeNode) -> None:
        rc, out = node.said[beginning]
        assert old in out
        node.said[beginning] = (rc, out.replace(old, new))

    return spoil


#: check -> node, what is spoilt there, words of the failure
SPOILT: list[tuple[str, str, Spoil, str]] = [
    ("test_base.py::test_clock_service_runs_and_is_enabled", "gpu1", stopped("chrony"), "chrony does not run"),
    ("test_base.py::test_clock_service_runs_and_is_enabled", "gpu1", disabled("chrony"), "chrony is not enabled"),
    ("test_base.py::test_clock_follows_the_servers_of_the_site", "gpu1", said("chronyc", 0), "follows nobody"),
    ("test_base.py::test_clock_follows_the_servers_of_the_site", "head", said("chronyc", 0, "^,*,1.2.3.4,3\n"),
     "wanted nobody"),
    ("test_base.py::test_every_node_is_known_by_name", "gpu1", cut("for n in", "10.1.0.11", "127.0.1.1"),
     "client1-fab0 is 127.0.1.1"),
    ("test_base.py::test_limits_of_a_login_are_as_wanted", "gpu1", said("runuser", 0, "8192\n1048576\n"),
     "are 8192 and 1048576, wanted unlimited"),
    ("test_base.py::test_kernel_parameters_are_in_effect", "gpu1",
     cut("sysctl ", "vm.swappiness = 10", "vm.swappiness = 60"), "vm.swappiness is 60, wanted 10"),
    ("test_base.py::test_boot_parameters_are_in_effect", "gpu1",
     lambda n: n.files.update({"/proc/cmdline": ("quiet numa_balancing=disable", "root", "444")}),
     "iommu=pt processor.max_cstate=1"),
    ("test_base.py::test_nothing_waits_for_a_reboot", "gpu1",
     said("cat /run/elastic-ai/reboot-required/", 0, "new kernel\n"), "a reboot waits: new kernel"),
    ("test_base.py::test_no_unit_of_the_toolkit_has_failed", "gpu1",
     said("systemctl list-units --failed", 0, "elastic-ai-rxe@fab0.service loaded failed\n"), "elastic-ai-rxe@fab0"),
    ("test_fabric.py::test_ports_have_address_and_mtu", "gpu1", cut("ip -json", "9000", "1500"),
     "MTU 1500, wanted 9000"),
    ("test_fabric.py::test_ports_have_address_and_mtu", "gpu1", cut("ip -json", "10.1.0.12", "10.1.0.99"),
     "fab0 has 10.1.0.99/24"),
    ("test_fabric.py::test_ports_have_address_and_mtu", "gpu1", cut("ip -json", ', "LOWER_UP"', ""), "without a link"),
    ("test_fabric.py::test_ports_have_address_and_mtu", "gpu1", said("ip -json", 0, "[]"), "fab0 is not there"),
    ("test_fabric.py::test_rdma_stack_is_installed", "gpu1", without("perftest"), "not installed: perftest"),
    ("test_fabric.py::test_rdma_modules_are_loaded", "gpu1", said("cut -d' ' -f1 /proc/modules", 0, "ib_uverbs\n"),
     "not loaded: rdma_ucm"),
    ("test_fabric.py::test_soft_roce_runs_on_its_ports", "gpu1", stopped("elastic-ai-rxe@fab0"),
     "no soft-RoCE on fab0"),
    ("test_fabric.py::test_roce_policy_is_in_effect", "gpu1",
     said("/usr/local/libexec/elastic-ai-roce check", 3, "fab0: pfc is []"), "pfc is"),
    ("test_gpu.py::test_driver_is_loaded_and_of_the_wanted_version", "gpu1", gone("/sys/module/nvidia/version"),
     "is not loaded"),
    ("test_gpu.py::test_driver_is_loaded_and_of_the_wanted_version", "gpu1",
     lambda n: n.files.update({"/sys/module/nvidia/version": ("470.1\n", "root", "444")}), "470.1, wanted 535"),
    ("test_gpu.py::test_nouveau_is_not_loaded", "gpu1",
     lambda n: n.files.update({"/sys/module/nouveau": ("", "root", "755")}), "nouveau is loaded"),
    ("test_gpu.py::test_persistence_daemon_runs", "gpu1", stopped("nvidia-persistenced"), "does not run"),
    ("test_gpu.py::test_cuda_is_of_the_wanted_version", "gpu1", gone("/usr/local/cuda-12.2/bin/nvcc"), "is not there"),
    ("test_gpu.py::test_cuda_is_of_the_wanted_version", "gpu1", other("cuda-toolkit-12-2", "12.2.0-1"),
     "wanted 12.2.2"),
    ("test_gpu.py::test_cuda_is_of_the_wanted_version", "gpu1", other("cuda-toolkit-12-2", "12.2.20-1"),
     "12.2.20-1, wanted 12.2.2"),
    ("test_gpu.py::test_driver_is_loaded_and_of_the_wanted_version", "gpu1",
     lambda n: n.files.update({"/sys/module/nvidia/version": ("5351.1\n", "root", "444")}), "5351.1, wanted 535"),
    ("test_gpu.py::test_dcgm_is_of_the_wanted_version", "gpu1", other("datacenter-gpu-manager-4-core", "1:4.6.01-1"),
     "is 4.6.01-1, wanted 4.6.0"),
    ("test_gpu.py::test_dcgm_is_of_the_wanted_version", "gpu1", other("datacenter-gpu-manager-4-core", "1:4.5.0-1"),
     "is 4.5.0-1, wanted 4.6.0"),
    ("test_gpu.py::test_dcgm_runs", "gpu1", disabled("nvidia-dcgm"), "is not enabled"),
    ("test_containers.py::test_engine_runs_and_is_enabled", "client1", stopped("docker"), "docker does not run"),
    ("test_containers.py::test_engine_runs_with_the_configuration_of_the_inventory", "gpu1",
     cut("docker info", '"DefaultRuntime": "runc"', '"DefaultRuntime": "other"'), "is other, wanted runc"),
    ("test_containers.py::test_engine_runs_with_the_configuration_of_the_inventory", "gpu1",
     cut("docker info", ', "nvidia"', ', "amd"'), "does not know the runtimes nvidia"),
    ("test_containers.py::test_gpu_servers_have_the_nvidia_runtime_and_nobody_else", "gpu1",
     lambda n: n.files.update({"/etc/docker/daemon.json": ("{}", "root", "644")}), "no runtime nvidia"),
    ("test_containers.py::test_gpu_servers_have_the_nvidia_runtime_and_nobody_else", "head",
     lambda n: n.files.update({"/etc/docker/daemon.json": (json.dumps({"runtimes": {"nvidia": {}}}), "root", "644")}),
     "has the runtime nvidia"),
    ("test_containers.py::test_engine_is_of_the_wanted_version", "gpu1", said("docker version", 0, "27.1.0\n"),
     "docker is 27.1.0, wanted 20.10.24"),
    ("test_containers.py::test_container_toolkit_is_of_one_wanted_version", "gpu1",
     other("libnvidia-container1", "1.18.0-1"), "libnvidia-container1 1.18.0-1"),
    ("test_containers.py::test_container_toolkit_is_of_one_wanted_version", "gpu1",
     other("libnvidia-container1", "1.19.10-1"), "wanted 1.19.1: libnvidia-container1 1.19.10-1"),
    ("test_containers.py::test_container_toolkit_is_of_one_wanted_version", "gpu1",
     other("libnvidia-container1", "1.19.1-2"), "of several versions"),
    ("test_remoting.py::test_ports_of_leases_are_closed_and_the_sweep_runs", "gpu1",
     stopped("elastic-ai-lease-sweep.timer"), "elastic-ai-lease-sweep.timer"),
    ("test_remoting.py::test_ports_of_leases_are_closed_and_the_sweep_runs", "gpu1", said("nft", 0, "table {}"),
     "drops nothing"),
    ("test_remoting.py::test_commands_of_leases_are_there", "client1", said("toolkit run", 127), "toolkit run"),
    ("test_remoting.py::test_the_pool_answers", "client1", said("toolkit gpus", 75), "toolkit gpus"),
    ("test_browsers.py::test_the_page_runs_with_a_certificate_that_lasts", "head", stopped("elastic-ai-page.service"),
     "elastic-ai-page.service does not run"),
    ("test_browsers.py::test_the_page_runs_with_a_certificate_that_lasts", "head",
     said("openssl", 1, "Certificate will expire\n"), "the certificate /page.pem has expired, expires within"),
    ("test_browsers.py::test_the_hub_runs_with_a_certificate_that_lasts", "head", disabled("elastic-ai-jupyterhub"),
     "elastic-ai-jupyterhub is not enabled"),
    ("test_browsers.py::test_the_hub_runs_with_a_certificate_that_lasts", "head",
     said("openssl", 1, "Certificate will expire\n"), "the certificate /hub.pem has expired, expires within"),
    ("test_pool.py::test_controller_and_accounting_run", "head", stopped("slurmdbd"), "slurmdbd does not run"),
    ("test_pool.py::test_every_gpu_server_serves", "head", said("sinfo", 0, "gpu1 down*\n"), "gpu1 is down"),
    ("test_pool.py::test_every_gpu_server_serves", "head", said("sinfo", 0, "gpu1 inval\n"), "gpu1 is inval"),
    ("test_pool.py::test_every_gpu_server_serves", "head", said("sinfo", 0, ""), "gpu1 is not known"),
    ("test_pool.py::test_node_daemon_runs", "gpu1", stopped("slurmd"), "slurmd does not run"),
    ("test_pool.py::test_credentials_run_and_their_key_is_kept_from_users", "client1",
     owned("/etc/munge/munge.key", "munge", "644"), "munge's, mode 644"),
    ("test_monitoring.py::test_exporter_of_the_node_listens", "client1",
     said("ss -Hltn 'sport = :9100'", 0, "LISTEN 0 1 127.0.0.1:9100 *:*\n"), r"nothing listens at 10\.0\.0\.11:9100"),
    ("test_monitoring.py::test_exporter_of_gpus_runs", "gpu1", stopped("elastic-ai-gpu-metrics"), "does not run"),
    ("test_monitoring.py::test_prometheus_listens_where_it_should_and_nowhere_else", "head",
     said("ss -Hltn 'sport = :9090'", 0, "LISTEN 0 1 *:9090 *:*\n"), "wanted 127.0.0.1:9090"),
    ("test_monitoring.py::test_rules_of_alerts_are_valid", "head", said("promtool", 1, "FAILED"), "FAILED"),
    ("test_monitoring.py::test_validations_come_by_themselves", "head", stopped("elastic-ai-revalidate.timer"),
     "does not run"),
    ("test_monitoring.py::test_validations_come_by_themselves", "head",
     gone("/opt/elastic-ai-toolkit/.venv/bin/toolkit"), "which the timer starts, is not there"),
    ("test_training.py::test_container_runs_and_is_enabled", "gpu1", stopped("elastic-ai-training"), "does not run"),
    ("test_training.py::test_container_listens_on_the_fabric", "gpu1", said("ss -Hltn 'sport = :50000'", 0),
     "nothing listens at 10.1.0.12:50000"),
    ("test_training.py::test_private_key_is_the_training_users", "gpu1",
     owned("/etc/elastic-ai/training/id_ed25519", "root", "600"), "root's, mode 600"),
    ("test_training.py::test_volumes_are_mounted", "gpu1",
     cut("docker inspect --format '{{json .Mounts}}'", '"Source": "/data"', '"Source": "/old"'), "/data at /data"),
    ("test_training.py::test_image_has_the_wanted_version", "gpu1",
     said("/usr/local/bin/elastic-ai-training-exec python3", 0, "0.27.0\n"), "horovod is 0.27.0, wanted 0.28.1"),
    ("test_training.py::test_registry_serves_where_the_image_is_made", "head", said("ss -Hltn 'sport = :5000'", 0),
     "nothing listens at 10.0.0.10:5000"),
    ("test_training.py::test_no_compiler_came_to_the_node", "head", other("g++", "12"), "installed: g"),
    ("test_acceptance.py::test_probes_load_and_need_the_standard_library_alone", "client1",
     said("/opt/elastic-ai/acceptance/bin/python -m pip", 0, "elastic-ai-toolkit==0.1.0\nnumpy==2.0\n"), "numpy"),
    ("test_acceptance.py::test_tools_are_there", "client1", lambda n: n.tools.remove("sockperf"), "sockperf"),
]  # fmt: skip


@pytest.mark.parametrize("node", GROUPS)
def test_a_healthy_node_passes_every_check_that_concerns_it(node: str) -> None:
    left = set()
    for check in checks_of(GROUPS[node]):
        try:
            run(check, healthy(node))
        except Skipped as why:
            left.add((check, str(why).partition(":")[0]))
    builds = ("test_training.py::test_no_compiler_came_to_the_node", "not applicable")
    hub = ("test_browsers.py::test_the_hub_runs_with_a_certificate_that_lasts", "not applicable")
    assert left == {"head": set(), "client1": {hub}, "gpu1": {builds}}[node]


def test_every_check_is_seen_to_fail() -> None:
    assert {check for check, *_ in SPOILT} == set(EVERY)


@pytest.mark.parametrize(("check", "node", "spoil", "words"), SPOILT, ids=[f"{c}-{w}" for c, _, _, w in SPOILT])
def test_a_check_fails_on_one_spoilt_thing_and_says_which(check: str, node: str, spoil: Spoil, words: str) -> None:
    assert check in checks_of(GROUPS[node])
    fake = healthy(node)
    spoil(fake)
    with pytest.raises(AssertionError, match=words):
        run(check, fake)


LEFT_OUT = [
    ({"slurm_state": "absent"}, "test_pool.py::test_node_daemon_runs", "slurm_state is absent"),
    ({"slurm_pool": {"scheduler": "none"}}, "test_pool.py::test_node_daemon_runs", "slurm_pool"),
    ({"slurm_pool": {"join": {"cluster": "prod"}}}, "test_pool.py::test_node_daemon_runs", "slurm_pool.join"),
    ({"roce_enabled": False}, "test_fabric.py::test_roce_policy_is_in_effect", "roce_enabled"),
    ({"ofed_soft_roce": False}, "test_fabric.py::test_soft_roce_runs_on_its_ports", "ofed_soft_roce"),
    ({"elastic_ai_virtual": "systemd-nspawn"}, "test_base.py::test_kernel_parameters_are_in_effect", "container"),
    ({"elastic_ai_virtual": "systemd-nspawn"}, "test_gpu.py::test_persistence_daemon_runs", "container"),
    ({"elastic_ai_virtual": "qemu"}, "test_base.py::test_boot_parameters_are_in_effect", "virtual"),
    ({"nvidia_driver_user_space_only": "true"}, "test_gpu.py::test_dcgm_runs", "user_space_only"),
    ({"remoting_engine_artifact": ""}, "test_remoting.py::test_the_pool_answers", "remoting engine"),
    ({"docker_version": ""}, "test_containers.py::test_engine_is_of_the_wanted_version", "names a version"),
    ({"base_manage_hosts": False}, "test_base.py::test_every_node_is_known_by_name", "base_manage_hosts"),
    ({"base_chrony_servers": ["ntp.example.net"]}, "test_base.py::test_clock_follows_the_servers_of_the_site", "time"),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "check", "words"), LEFT_OUT, ids=[f"{v}-{c}" for v, c, _ in LEFT_OUT])
def test_what_the_inventory_leaves_out_does_not_concern_the_node(
    variables: dict[str, Any], check: str, words: str
) -> None:
    with pytest.raises(Skipped, match=f"not applicable: .*{words}"):
        run(check, healthy("gpu1"), inventory(**variables))


def test_a_page_that_the_inventory_wants_and_nobody_has_deployed_is_a_fault() -> None:
    check, node = "test_browsers.py::test_the_page_runs_with_a_certificate_that_lasts", healthy("head")
    node.files.pop("/etc/elastic-ai/page/page.json")
    with pytest.raises(Skipped, match="not applicable: pool_page is not set"):
        run(check, node)
    node.stops("elastic-ai-page.service")
    with pytest.raises(AssertionError, match=r"elastic-ai-page\.service does not run"):
        run(check, node, inventory(pool_page=True))


def test_a_head_that_validates_nothing_by_itself_needs_no_timer() -> None:
    with pytest.raises(Skipped, match="not applicable: monitoring_revalidate is empty"):
        run(
            "test_monitoring.py::test_validations_come_by_themselves",
            healthy("head"),
            inventory(monitoring_revalidate=[]),
        )


@pytest.mark.parametrize(
    "check", ["test_prometheus_listens_where_it_should_and_nowhere_else", "test_rules_of_alerts_are_valid"]
)
def test_a_head_whose_system_has_no_prometheus_is_not_asked_for_it(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "system", "el9")
    node = healthy("head")
    said("promtool", 127)(node)
    with pytest.raises(Skipped, match="this system has no package of Prometheus"):
        run(f"test_monitoring.py::{check}", node)


@pytest.mark.parametrize(
    ("name", "release", "system"),
    [("ol", "9.6", "el9"), ("rocky", "9.6", "el9"), ("ubuntu", "24.04", "ubuntu2404"), ("debian", "13", "debian13")],
)
def test_a_system_is_called_as_the_roles_call_it(name: str, release: str, system: str) -> None:
    site = Site(fake_host(healthy("gpu1"), inventory()))
    site._host = SimpleNamespace(system_info=SimpleNamespace(distribution=name, release=release))
    assert site.system == system


def test_expectations_follow_the_inventory_then_the_release_then_the_role() -> None:
    host = fake_host(healthy("gpu1"), inventory(dcgm_version="4.7.0", stack_overrides={"cuda": {"toolkit": "12.9.1"}}))
    site = Site(host)
    assert site.system == "debian12"
    assert site.version("dcgm_version", "dcgm") == "4.7.0"
    assert site.version("cuda_version", "cuda", "toolkit") == "12.9.1"
    assert site.version("cuda_cudnn_version", "cuda", "cudnn") == "8.9.7.29"
    assert site.wants("horovod_ssh_port") == 50000
    assert (site.hosts("all"), site.head, site.is_head) == (["head", "client1", "gpu1"], "head", False)


def test_what_cannot_be_known_is_not_taken_for_a_pass() -> None:
    check = "test_fabric.py::test_ports_have_address_and_mtu"
    with pytest.raises(Unresolved, match="fabric_mtu is a template"):
        run(check, healthy("gpu1"), inventory(fabric_mtu="{{ mtu }}"))
    with pytest.raises(Unresolved, match="no such file"):
        run("test_gpu.py::test_dcgm_is_of_the_wanted_version", healthy("gpu1"), inventory(stack_release="current-x"))
    lost = healthy("gpu1")
    lost.down = True
    with pytest.raises(RuntimeError, match="no answer"):
        run(check, lost)
