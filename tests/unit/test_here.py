"""What this machine shows of itself before it is measured by itself; folders stand in for /sys, /proc and /dev."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.driver import whole
from tests.support.recordings import RECORDINGS
from tests.support.site import CRITERIA, RUN, criterion, healthy, result
from toolkit.here import Driver, file_trouble, find_torch, gpu_trouble, node_name, said, topology_here
from validation.judging.run_data import RunData
from validation.kinds import parse
from validation.model import Found, Measurement, Node, Plan, Result, RunInfo, Sample, SshTarget, Topology, VerdictDoc
from validation.plan.suites import PlanError, make_plan
from validation.probes import gpu_host
from validation.probes.cuda import HINTS
from validation.probes.virtualisation import by_marks
from validation.rules.fabric import no_fabric
from validation.verdict.judge import judge

GPUS = ("0000:18:00.0", "0000:3b:00.0")


class Machine:
    """Folders like those of a machine with two GPUs in order; tests spoil them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for gpu in GPUS:
            (root / "sys/bus/pci/devices" / gpu).mkdir(parents=True)
            (root / "proc/driver/nvidia/gpus" / gpu).mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64\n")
        (root / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            (root / "dev" / name).touch()

    @property
    def trouble(self) -> str:
        return gpu_trouble(GPUS, self.root / "sys", self.root / "proc", self.root / "dev")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_gpus_in_order_are_no_trouble(machine: Machine) -> None:
    assert machine.trouble == ""
    assert gpu_trouble((), machine.root, machine.root, machine.root) == ""


def test_no_driver_and_another_driver_are_told_apart(machine: Machine) -> None:
    (machine.root / "proc/driver/nvidia/version").unlink()
    assert machine.trouble.startswith("no NVIDIA driver: none is loaded")
    (machine.root / "nouveau").mkdir()
    (machine.root / "sys/bus/pci/devices" / GPUS[0] / "driver").symlink_to(machine.root / "nouveau")
    assert machine.trouble.startswith("no NVIDIA driver: nouveau has the first of them")


def test_a_gpu_that_the_driver_lost_is_counted(machine: Machine) -> None:
    (machine.root / "proc/driver/nvidia/gpus" / GPUS[1]).rmdir()
    assert machine.trouble.startswith("the NVIDIA driver has 1 of 2 GPUs")


def test_missing_device_files_are_counted(machine: Machine) -> None:
    (machine.root / "dev/nvidia1").unlink()
    assert machine.trouble.startswith("2 of 3 device files are in ")


def test_the_file_that_cuda_itself_needs_is_looked_at_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it NVML counts the GPUs, and the first call of CUDA ends in error 999."""
    uvm = machine.root / "dev/nvidia-uvm"
    monkeypatch.setattr("toolkit.here.os.access", lambda path, mode: Path(path).name != "nvidia-uvm")
    assert machine.trouble.startswith(f"this user cannot open {uvm};")
    uvm.unlink()
    assert machine.trouble.startswith(f"{uvm} is missing, without which CUDA does not start (error 999): modprobe")
    assert "modprobe nvidia_uvm" in HINTS[999]


def test_device_files_that_this_user_may_not_open_are_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.here.os.access", lambda path, mode: Path(path).name != "nvidia1")
    assert machine.trouble.startswith(f"this user cannot open {machine.root / 'dev/nvidia1'};")


@pytest.mark.parametrize(
    ("hostname", "name"), [("gpu7.example.com", "gpu7"), ("a b/c", "a-b-c"), ("", "here"), ("...", "here")]
)
def test_the_nodes_name_is_safe_as_a_file_name(hostname: str, name: str) -> None:
    assert node_name(hostname) == name


def test_torch_is_looked_for_in_order_and_its_interpreter_is_named(tmp_path: Path) -> None:
    def python(name: str, script: str) -> str:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    bare, full, other = python("bare", "exit 1"), python("full", "echo 2.5.1+cu124"), python("other", "echo 1.13")
    assert find_torch([str(tmp_path / "gone"), bare, full, other]) == ("2.5.1+cu124", full)
    assert find_torch([bare]) == ("", "")


def test_this_machine_is_one_node_that_owns_up_to_what_it_is() -> None:
    found = topology_here()
    assert found.here is not None
    assert not found.virtual
    assert "no inventory" in said(found)[-1]
    assert Topology.model_validate_json(found.model_dump_json()) == found


def found_with(
    monkeypatch: pytest.MonkeyPatch, root: Path, on_buses: int, driver: Driver, contained: bool = False
) -> Found:
    """What is found of a machine whose /sys shows so many GPUs and whose NVML says this."""
    cards = [{"what": "gpu", "address": f"0000:{n:02x}:00.0"} for n in range(on_buses)]
    monkeypatch.setattr("toolkit.here.pcie.collect", lambda *_: cards)
    monkeypatch.setattr("toolkit.here.ask_driver", lambda: driver)
    monkeypatch.setattr("toolkit.here.virtualisation.detect", lambda: ("docker" if contained else "none", contained))
    monkeypatch.setattr("toolkit.here.DEV", root / "dev")
    monkeypatch.setattr("toolkit.here.gpu_trouble", lambda gpus: file_trouble(len(gpus)) if gpus else "")
    here = topology_here().here
    assert here is not None
    return here


def test_where_sys_shows_no_gpu_nvml_is_believed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """gVisor shows no PCI function, and WSL's are not NVIDIA's."""
    found = found_with(monkeypatch, machine.root, 0, Driver(False, 2, ""))
    assert (found.gpus, found.emulated, found.gpu_trouble) == (2, False, "")
    found = found_with(monkeypatch, machine.root, 0, Driver(False, 2, "libcuda.so.1 cannot be loaded: none"))
    assert (found.gpus, found.gpu_trouble) == (2, "libcuda.so.1 cannot be loaded: none")
    (machine.root / "dev/nvidia-uvm").unlink()
    assert "nvidia-uvm is missing" in found_with(monkeypatch, machine.root, 0, Driver(False, 2, "")).gpu_trouble
    assert found_with(monkeypatch, machine.root / "wsl", 0, Driver(False, 1, "")).gpu_trouble == ""  # no such files
    assert found_with(monkeypatch, machine.root, 0, Driver(False, 0, "no libnvidia-ml.so.1")).gpus == 0
    found = found_with(monkeypatch, machine.root, 0, Driver(True, 4, ""))
    assert (found.gpus, found.emulated, found.gpu_trouble) == (4, True, "")


def test_a_container_has_the_gpus_that_it_was_given_and_not_its_hosts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_with(monkeypatch, machine.root, 8, Driver(False, 2, ""), contained=True)
    assert (found.gpus, found.gpu_trouble) == (2, "")
    found = found_with(monkeypatch, machine.root, 8, Driver(False, 2, ""))  # a machine: six are missing
    assert found.gpus == 8
    assert found.gpu_trouble.startswith("3 of 9 device files are in ")
    found = found_with(monkeypatch, machine.root, 8, Driver(False, 0, "no libnvidia-ml.so.1"), contained=True)
    assert (found.gpus, bool(found.gpu_trouble)) == (8, True)


@pytest.mark.parametrize(
    ("on_buses", "contained", "by_nvml", "emulated", "count"),
    [
        (0, False, 1, False, 1),
        (0, True, 0, False, 0),
        (0, True, 4, True, 0),
        (8, True, 2, False, 2),
        (8, False, 2, False, 8),
        (8, True, 4, True, 8),
        (8, True, 0, False, 8),
    ],
)
def test_a_probe_counts_what_its_machine_was_given(
    monkeypatch: pytest.MonkeyPatch, on_buses: int, contained: bool, by_nvml: int, emulated: bool, count: int
) -> None:
    class Nvml:
        def __enter__(self) -> Nvml:
            self.emulated = emulated
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

        def count(self) -> int:
            return by_nvml

    monkeypatch.setattr(gpu_host, "Nvml", Nvml)
    assert gpu_host.given(on_buses, contained) == count


def one(gpus: int = 0, **more: str | bool) -> Topology:
    groups = ("gpu_servers",) if gpus else ("machines",)
    node = Node(name="new", groups=groups, ssh=SshTarget(host="localhost"), ports=())
    return Topology(site="new", nodes=(node,), here=Found(user="ops", gpus=gpus, **more))


def plan_of_one(topology: Topology, *suites: str) -> Plan:
    return make_plan(RUN, topology, no_fabric().fabric, CRITERIA, suites or ("preflight", "compute"))


FAST = {"link": {"gt_s": 16.0, "lanes": 16}, "card": {"gt_s": 16.0, "lanes": 16}}
SHORT = {**FAST, "link": {"gt_s": 16.0, "lanes": 8}}


def judged(topology: Topology, gpu: dict[str, object] | None = None, **facts: object) -> VerdictDoc:
    """The verdict on a machine of hardware whose GPU, if it has one, has this PCI Express link."""
    plan = plan_of_one(topology)
    port = {"address": "0000:3a:00.0", "acs": {"capable": True, "control": 0}}
    cards = [{"what": "gpu", "address": GPUS[0], "numa": 0, "above": [port], **gpu}] if gpu else []
    shown = {"virt": "none", "lab": "", "fabric_ports": [], "pci": cards, "gpu_count": len(cards)}
    shown |= {"driver_loaded": "580.173.02" if cards else "", **whole("580.173.02"), **facts}
    shown["nvlink"] = [{"address": card["address"], "links": []} for card in cards]
    copies = [Sample(metric="memory_copy_gb_s", value=100 + i / 100, unit="GB/s") for i in range(10)]
    exact = [Sample(metric="wrong_digests", value=0, unit="count")]
    figures = {"memory-bandwidth": copies, "exact-compute": exact}
    own = ("facts", "gpu-health", "dcgm-diag")

    def measured(m: Measurement) -> Result:
        """What was made up here, or else what the probe recorded."""
        if m.kind in own:
            return healthy(m, facts=shown)
        return result(m, figures[m.kind] if m.kind in figures else parse(m.kind, *RECORDINGS[m.kind])[0])

    results = [measured(m) for m in plan.measurements]
    info = RunInfo(
        run=RUN, created="2026-11-21T10:00:00Z", toolkit_version="0", site="new", inventory="", fabric="none",
        suites=plan.suites, command=("toolkit",), documents={},
    )  # fmt: skip
    return judge(RunData(info, topology, plan, no_fabric().fabric, CRITERIA, results))


def test_a_machine_in_order_is_inspected_and_never_accepted() -> None:
    verdict = judged(one(1), FAST)
    assert (verdict.sign_off, verdict.outcome, verdict.exit_code) == ("INSPECTION", "passed", 0)
    assert verdict.owed == ()
    assert criterion(verdict, "pf.pcie").verdict == "pass"
    assert criterion(verdict, "pf.bom").reason_code == "no-bound"
    assert criterion(verdict, "co.membw").judgements[0].value == pytest.approx(100, rel=0.01)


def test_what_is_wrong_whatever_was_declared_fails() -> None:
    verdict = judged(one(1), SHORT)
    assert (verdict.sign_off, verdict.outcome, verdict.exit_code) == ("INSPECTION", "failed", 1)
    assert criterion(verdict, "pf.pcie").verdict == "fail"


def test_gpus_that_cannot_be_used_make_it_incomplete() -> None:
    verdict = judged(one(1, gpu_trouble="no NVIDIA driver: none is loaded"), FAST)
    assert (verdict.sign_off, verdict.exit_code) == ("INSPECTION", 3)
    assert "its GPUs were not measured: no NVIDIA driver: none is loaded" in verdict.notes


def test_without_a_gpu_nothing_of_gpus_is_judged_and_it_is_said() -> None:
    plan = plan_of_one(one())
    assert not {"pf.pcie", "pf.numa", "pf.mtu"} & {id_ for m in plan.measurements for id_ in m.criteria}
    assert plan.left_out[0].why == "no GPU in this machine: nothing of GPUs was measured"
    said_of = criterion(judged(one()), "pf.numa")
    assert (said_of.verdict, said_of.reason_code) == ("not-measured", "not-selected")
    assert "no GPU in this machine" in said_of.reason


def test_a_container_is_inspected_where_it_has_gpus_and_else_a_rehearsal() -> None:
    assert judged(one(1), FAST, virt="docker").sign_off == "INSPECTION"
    assert judged(one(), virt="docker").sign_off == "REHEARSAL"
    assert judged(one(1, gpu_trouble="no driver"), FAST, virt="docker").sign_off == "REHEARSAL"


def test_one_machine_cannot_do_what_takes_two() -> None:
    with pytest.raises(PlanError, match="cannot do suite operations; it can do preflight, transport, compute"):
        plan_of_one(one(), "operations")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({".dockerenv": ""}, ("docker", True)),
        ({"run/.containerenv": ""}, ("podman", True)),
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0"}, ("container-other", True)),
        ({"proc/1/environ": "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.96.0.1\0"}, ("container-other", True)),
        ({"run/secrets/kubernetes.io/serviceaccount/token": "x"}, ("container-other", True)),
        ({".singularity.d/actions/exec": "", "proc/cpuinfo": "vendor_id\t: GenuineIntel\n"}, ("container-other", True)),
        (
            {
                "proc/self/mountinfo": "612 540 0:57 / / rw,relatime - overlay overlay rw,lowerdir=/x\n",
                "proc/cpuinfo": "vendor_id\t: AuthenticAMD\nflags\t\t: fpu lahf_lm\n",
            },
            ("unknown", False),
        ),
        (
            {
                "proc/self/mountinfo": "26 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
                "40 26 0:57 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw\n",
                "proc/cpuinfo": "vendor_id\t: AuthenticAMD\nflags\t\t: fpu lahf_lm\n",
            },
            ("none", False),
        ),
        ({"proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor lahf_lm\n"}, ("vm-other", False)),
        ({"proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu lahf_lm\n"}, ("none", False)),
        ({"proc/cpuinfo": "CPU implementer\t: 0x41\n"}, ("unknown", False)),
        ({}, ("unknown", False)),
    ],
)
def test_without_systemd_what_cannot_be_told_is_not_taken_for_hardware(
    tmp_path: Path, files: dict[str, str], found: tuple[str, bool]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert by_marks(tmp_path) == found
