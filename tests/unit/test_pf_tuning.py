"""What a node's kernel and services are set to is read from trees as Linux shows them, and judged where it is the
node's own."""

from __future__ import annotations

import struct
import subprocess

import pytest

from tests.support.site import LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, results_of, verdict_of
from toolkit.lab.vmfaults import NODE_FAULTS, SOMAXCONN
from validation.measures.node.tuning_table import IDLE_LATENCY_US
from validation.model.tuning import Tuning
from validation.probes import tuning
from validation.probes.tool import Ran

GPUS = {"gpu_count": 1, "gpu_model": "NVIDIA H100 80GB HBM3"}
NUMA = [{"number": number, "socket": number, "cpus": "", "distances": []} for number in (0, 1)]
WELL = {
    "governors": [{"name": "performance", "policies": 128}], "governor_unit": "performance", "machine": "x86_64",
    "idle": [{"name": "C1", "latency_us": 1, "processors": 128}], "latency_limit_us": 2_000_000_000,
    "numa_balancing": 0, "zone_reclaim": 0, "huge_pages": "madvise", "irqbalance": "active",
    "sysctls": [{"name": "vm.swappiness", "wanted": "10", "found": "10"}],
    "memlock_wanted": "infinity", "services": [{"service": "slurmd", "memlock_bytes": None}],
}  # fmt: skip
DEEP = {"name": "C6", "latency_us": 190, "processors": 128}
DRIFT = {"sysctls": [{"name": "vm.swappiness", "wanted": "10", "found": "60"}]}


def cards(iommu):
    return [{**card, "iommu": iommu} for card in REAL_FACTS["pci"]]


def of_gpu2(found, fabric="tcp10", iommu="identity", **facts):
    """gpu2's judgement, of a GPU server of hardware unless `facts` say otherwise."""
    shown = {**REAL_FACTS, **GPUS, "numa_nodes": NUMA, "pci": cards(iommu), "tuning": found, **facts}
    site = LAB if shown["virt"] == "systemd-nspawn" else hardware()
    plan = plan_of(site, ("preflight",), fabric)
    results = results_of(plan, lambda m: healthy(m, facts=shown) if m.id == "facts.gpu2" else None)
    verdict = verdict_of(site, plan, results, fabric=fabric)
    return next(j for j in criterion(verdict, "pf.tuning").judgements if j.subject == "gpu2")


def test_a_server_as_provisioned_passes_and_says_how_it_is_set():
    found = of_gpu2(WELL)
    assert (found.verdict, found.reason_code) == ("pass", "within-bounds"), found.reason
    assert "governor performance (128)" in found.reason
    assert "1 kernel parameters as provisioned" in found.reason
    assert "IOMMU identity" in found.reason


def test_pages_cannot_move_where_one_node_alone_has_processors():
    """GH200: eight more nodes are there for the memory of the GPU."""
    grace = [{"number": 0, "socket": 0, "cpus": "0-71"}, *({"number": n, "cpus": ""} for n in range(1, 9))]
    assert of_gpu2({**WELL, "numa_balancing": 1}, numa_nodes=grace).verdict == "pass"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (DRIFT, "vm.swappiness is '60', '10' was provisioned"),
        ({"sysctls": [{"name": "kernel.x", "wanted": "1", "found": None}]}, "kernel.x is not there, '1' was"),
        (
            {"governors": [{"name": "performance", "policies": 124}, {"name": "powersave", "policies": 4}]},
            "the CPU governor is powersave on 4 of 128 frequency policies and not performance",
        ),
        ({"governors": [{"name": "schedutil", "policies": 2}], "governor_unit": ""}, "schedutil on 2 of 2"),
        ({"idle": [*WELL["idle"], DEEP]}, "processors may enter C6 (190 us, on 128 processors); bound 100 us"),
        ({"idle": [{**DEEP, "latency_us": IDLE_LATENCY_US}]}, "C6 (100 us"),
        ({"numa_balancing": 1}, "automatic NUMA balancing is on (1)"),
        ({"zone_reclaim": 1}, "vm.zone_reclaim_mode is 1, and nobody provisioned it"),
        (
            {"tuned": "active", "tuned_profile": "balanced", "tuned_governors": ["schedutil", "performance"]},
            "tuned (profile balanced) sets the governor schedutil, which is to be performance",
        ),
        (
            {"services": [{"service": "slurmd", "memlock_bytes": 8388608}]},
            "slurmd may lock 8388608 bytes of memory, its jobs no more, and infinity is wanted",
        ),
    ],
)
def test_what_is_set_otherwise_fails_with_its_words(changes, words):
    found = of_gpu2(WELL | changes)
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert words in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"idle": [DEEP], "latency_limit_us": 50},  # PM QoS keeps it out
        {"idle": [{**DEEP, "latency_us": IDLE_LATENCY_US - 1}]},
        {"zone_reclaim": 1, "sysctls": [{"name": "vm.zone_reclaim_mode", "wanted": "1", "found": "1"}]},
        {"numa_balancing": 1, "sysctls": [{"name": "kernel.numa_balancing", "wanted": "1", "found": "1"}]},
        {"governors": [], "governor_unit": ""},  # the BIOS decides
        {"governors": [{"name": "powersave", "policies": 1}], "governor_unit": "powersave"},  # as the site wants it
        {"tuned": "inactive", "tuned_governors": ["powersave"]},
        {"tuned": "active", "tuned_governors": ["performance", "schedutil"]},
        {"memlock_wanted": "", "services": [{"service": "docker", "memlock_bytes": 8388608}]},  # a fabric of TCP
        {"memlock_wanted": "4096", "services": [{"service": "docker", "memlock_bytes": 4096}]},
        {"sysctls": None},
    ],
)
def test_what_a_site_may_have_passes(changes):
    found = of_gpu2(WELL | changes)
    assert found.verdict == "pass", found.reason


def test_an_rdma_fabric_needs_memory_that_may_be_locked():
    low = {"memlock_wanted": "", "services": [{"service": "slurmd", "memlock_bytes": 65536}]}
    found = of_gpu2(WELL | low, fabric="roce40")
    assert "slurmd may lock 65536 bytes of memory, its jobs no more, and no limit is wanted" in found.reason


def test_the_iommu_has_to_pass_the_cards_of_a_gpu_server_through():
    found = of_gpu2(WELL, iommu="DMA-FQ")
    assert (found.verdict, "iommu=pt is not in effect" in found.reason) == ("fail", True)
    assert of_gpu2(WELL, iommu="none").verdict == "pass"
    assert of_gpu2({**WELL, "machine": "aarch64"}, iommu="DMA").verdict == "pass"  # nothing tells
    unknown = of_gpu2(WELL, iommu="")
    assert (unknown.verdict, unknown.reason_code) == ("not-measured", "missing-metric")


def test_what_cannot_be_known_is_not_passed():
    for found, words in (
        (None, "the facts say nothing of how the node is tuned"),
        ({**WELL, "unread": "PermissionError: x"}, "PermissionError: x"),
        ({**WELL, "idle": [DEEP], "latency_limit_us": None}, "only root can read whether PM QoS"),
    ):
        said = of_gpu2(found)
        assert (said.verdict, said.reason_code) == ("not-measured", "missing-metric")
        assert words in said.reason


def test_each_machine_is_judged_by_what_is_its_own():
    odd = WELL | {"governors": [{"name": "powersave", "policies": 1}], "idle": [DEEP], "governor_unit": ""}
    guest = of_gpu2(odd, virt="vmware", iommu="DMA")
    assert guest.verdict == "pass"
    assert "they are its hypervisor's (vmware)" in guest.reason
    assert of_gpu2({**odd, "numa_balancing": 1}, virt="vmware").verdict == "fail"
    inside = of_gpu2({**odd, "numa_balancing": 1}, virt="systemd-nspawn")
    assert (inside.verdict, inside.reason_code) == ("not-measured", "virtual")
    assert of_gpu2({**odd, **DRIFT}, virt="systemd-nspawn").verdict == "fail"  # the parameters it may set are its own
    head = of_gpu2(odd, gpu_count=0, gpu_model="", pci=[REAL_FACTS["pci"][0]], nvlink=None)
    assert head.verdict == "pass", head.reason  # only GPU servers are asked for more than was provisioned


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


CPU = "sys/devices/system/cpu"
TREE = {
    f"{CPU}/cpufreq/policy0/scaling_governor": "performance\n",
    f"{CPU}/cpufreq/policy0/energy_performance_preference": "performance\n",
    f"{CPU}/cpufreq/policy1/scaling_governor": "powersave\n",
    f"{CPU}/cpuidle/current_driver": "intel_idle\n",
    **{
        f"{CPU}/cpu{cpu}/cpuidle/state{state}/{leaf}": f"{value}\n"
        for cpu in (0, 1)
        for state, (name, latency) in enumerate((("POLL", 0), ("C1", 1), ("C6", 190)))
        for leaf, value in (("name", name), ("latency", latency), ("disable", int(cpu == 1 and name == "C6")))
    },
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    "proc/sys/net/ipv4/conf/eth0.100/rp_filter": "2\n",
    "proc/77/limits": "Max open files  1024  524288  files\nMax locked memory  8388608  8388608  bytes\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    tuning.SYSCTLS: "# role tuning\nvm.swappiness = 10\nnet.ipv4.tcp_rmem = 4096 131072 6291456\n"
    "net/ipv4/conf/eth0.100/rp_filter = 2\nkernel.gone = 1\n",
    tuning.UNIT: "[Unit]\nDescription=CPU frequency governor performance\n",
    tuning.MANAGER: "[Manager]\nDefaultLimitMEMLOCK=infinity\n",
    "etc/tuned/active_profile": "site\n",
    "etc/tuned/site/tuned.conf": "[main]\ninclude=middle\n[sysctl]\nvm.swappiness=60\n",
    "usr/lib/tuned/middle/tuned.conf": "[main]\ninclude=balanced\n",
    "usr/lib/tuned/profiles/balanced/tuned.conf": "[cpu]\ngovernor=schedutil|powersave # first that there is\n",
}


def systemd(command, **_):
    said = {"is-active tuned": "active", "is-active irqbalance": "inactive", "show slurmd": "77", "show docker": "0"}
    return Ran([*command], 0, next((v for k, v in said.items() if " ".join(command[1:]).startswith(k)), "") + "\n", "")


def test_a_tree_is_read_as_linux_shows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "run_tool", systemd)
    write(tmp_path, TREE)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/cpu_dma_latency").write_bytes(struct.pack("=i", 50))
    found = Tuning.model_validate(tuning.collect(tmp_path))
    assert {g.name: g.policies for g in found.governors} == {"performance": 1, "powersave": 1}
    assert [str(state) for state in found.idle][-1] == "C6 (190 us, on 1 processors)"
    assert (found.latency_limit_us, found.idle_driver, found.energy) == (50, "intel_idle", ("performance",))
    assert {s.name: s.found for s in found.sysctls} == {
        "vm.swappiness": "60",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "net/ipv4/conf/eth0.100/rp_filter": "2",
        "kernel.gone": None,
    }
    assert (found.governor_unit, found.memlock_wanted, found.huge_pages) == ("performance", "infinity", "madvise")
    assert (found.tuned, found.tuned_profile, found.tuned_governors) == ("active", "site", ("schedutil", "powersave"))
    assert [(s.service, s.memlock_bytes) for s in found.services] == [("slurmd", 8388608)]
    assert (found.numa_balancing, found.zone_reclaim, found.irqbalance, found.unread) == (1, 0, "inactive", "")


def test_a_machine_without_any_of_it_is_read_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "run_tool", lambda command, **_: Ran([*command], 127, "", "not there"))
    found = Tuning.model_validate(tuning.collect(tmp_path))
    assert (found.governors, found.idle, found.sysctls, found.latency_limit_us, found.unread) == (
        (),
        (),
        None,
        None,
        "",
    )


def test_a_profile_that_includes_itself_or_is_none_ends(tmp_path, monkeypatch):
    write(tmp_path, {"etc/tuned/loop/tuned.conf": "[main]\ninclude=loop\n"})
    assert tuning.profile_governors(tmp_path, "loop") == []
    assert tuning.profile_governors(tmp_path, "../../etc") == []
    monkeypatch.setattr(tuning, "run_tool", systemd)
    write(tmp_path, {**TREE, "etc/tuned/site/tuned.conf": "no section\n"})
    assert "MissingSectionHeaderError" in tuning.collect(tmp_path)["unread"]


def test_the_planted_fault_is_what_the_probe_finds_and_is_taken_back(tmp_path):
    write(tmp_path, {"proc/sys/net/core/somaxconn": "4096\n", tuning.SYSCTLS: "net.core.somaxconn = 4096\n"})
    fault = NODE_FAULTS["sysctl-drift"]
    assert not fault.vm_only
    for script, there in ((fault.plant, "128"), (fault.clear, "4096"), (fault.clear, "4096")):
        text = script.replace(SOMAXCONN, str(tmp_path / SOMAXCONN[1:])).replace("$kept", str(tmp_path))
        subprocess.run(["sh", "-eu", "-c", text], check=True)
        assert [row["found"] for row in tuning.sysctls(tmp_path)] == [there]
