"""Probes and their supervisor, with real processes."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.run_case import processes_of
from validation.measures.fabric import serve_probe
from validation.measures.node import facts_probe
from validation.measures.tcp import tcp_bandwidth_probe, tcp_latency_probe
from validation.measures.training import training_short_probe
from validation.probes import __main__ as entry
from validation.probes.asked import make

SOURCES = entry.sources()
ROOT = Path(entry.__file__).parents[2]

# A probe whose tool starts two more processes, one of which leaves the session, as daemons do.
TREE = """
import subprocess, sys, time
from validation.probes.supervise import supervise
def probe():
    subprocess.run(["sh", "-c", "setsid sleep {mark} & sleep {mark} & wait"])
    return 0
sys.exit(supervise(probe, {deadline}, True, {hold}))
"""


def start_tree(mark: str, deadline: float = 60, hold: float = 0) -> subprocess.Popen[bytes]:
    code = TREE.format(mark=mark, deadline=deadline, hold=hold)
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=ROOT)
    if not hold:
        wait_for(lambda: len(sleeps(mark)) >= 2)
    return process


def wait_for(condition: object, seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def sleeps(mark: str) -> list[str]:
    return [line for line in processes_of(mark) if line.split()[1] == "sleep"]


def mark(number: int) -> str:
    """A sleeping time that names this test's processes."""
    return f"{os.getpid()}.{number}"


def test_nothing_is_left_when_the_controller_closes_stdin() -> None:
    process = start_tree(mark(1))
    process.stdin.close()
    assert process.wait(10) == 143
    assert sleeps(mark(1)) == []


def test_nothing_is_left_after_the_deadline() -> None:
    process = start_tree(mark(2), deadline=0.5)
    assert process.wait(10) == 124
    assert sleeps(mark(2)) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_after_a_signal(number: int) -> None:
    process = start_tree(mark(3))
    process.send_signal(number)
    assert process.wait(10) == 143
    assert sleeps(mark(3)) == []


def test_the_tool_dies_with_a_killed_supervisor() -> None:
    serving = [sys.executable, "-m", "validation.probes", "--controlled", "serve"]
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    asked = json.dumps({"tool": "iperf3", "asked": {"bind": "127.0.0.9", "port": 15990}})
    process = subprocess.Popen([*serving, asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert json.loads(process.stdout.readline()) == {"ready": True}
    process.kill()
    process.wait(5)
    wait_for(lambda: processes_of("127.0.0.9", "15990") == [])


def test_what_a_tool_leaves_behind_is_killed_at_its_end() -> None:
    code = (
        "import subprocess, sys\nfrom validation.probes.supervise import supervise\n"
        f"def probe():\n    subprocess.run(['sh', '-c', 'setsid sleep {mark(4)} >/dev/null 2>&1 & exit 0'])\n"
        "    return 7\nsys.exit(supervise(probe, 30, False))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=20, check=False)
    assert done.returncode == 7
    assert sleeps(mark(4)) == []


def test_a_held_probe_starts_when_it_is_told_to() -> None:
    process = start_tree(mark(5), hold=30)
    time.sleep(0.5)
    assert sleeps(mark(5)) == []
    process.stdin.write(b"go\n")
    process.stdin.flush()
    wait_for(lambda: len(sleeps(mark(5))) >= 2)
    process.stdin.close()
    process.wait(10)


def test_a_held_probe_never_starts_when_the_controller_goes() -> None:
    process = start_tree(mark(6), hold=30)
    process.stdin.close()
    assert process.wait(10) == 143
    assert sleeps(mark(6)) == []


def test_listening_is_seen_without_connecting_and_only_of_the_process_itself() -> None:
    with socket.create_server(("127.0.0.8", 0)) as server:
        port = server.getsockname()[1]
        assert serve_probe.listens(os.getpid(), "127.0.0.8", port)
        assert not serve_probe.listens(os.getppid(), "127.0.0.8", port)
        assert not serve_probe.listens(os.getpid(), "127.0.0.7", port)
    assert not serve_probe.listens(os.getpid(), "127.0.0.8", port)


WITH_THEM = ("validation.base.counting", "validation.nvml")
"""What travels with them: of the standard library alone, too."""
CONTROLLER = ("controller.py", "converged_probe.py", "switches_probe.py")
OF_THE_CONTROLLER = ("validation.base.project", "validation.base.sockets", "validation.rules.release")
"""The project's files and Ansible: known to those that run where these are."""
BY_SOURCE = {"support.py": "validation.base.temporary"}
"""What comes over ssh by its source with all that it imports (toolkit/scan/shipped.py), and is run in no other way."""
PROGRAMS_OF_TORCH = ("torch_attempts.py", "torch_load.py", "torch_networks.py")
PROGRAMS_OF_TENSORFLOW = ("tf_load.py", "tf_networks.py")
OF_A_FRAMEWORK = {
    **dict.fromkeys(PROGRAMS_OF_TORCH, ("torch",)),
    **dict.fromkeys(PROGRAMS_OF_TENSORFLOW, ("tensorflow", "numpy")),
}
"""No probes but what probes start, by a Python that has the framework: only they know each other."""


@pytest.mark.parametrize(
    "path", [*SOURCES, ROOT / "validation/base/counting.py", *sorted((ROOT / "validation/nvml").glob("*.py"))], ids=str
)
def test_probes_need_nothing_but_python_3_9_and_its_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            beside = name.startswith(WITH_THEM) or (name in OF_THE_CONTROLLER and path.name in CONTROLLER)
            beside |= name in OF_A_FRAMEWORK.get(path.name, ()) or name == BY_SOURCE.get(path.name)
            assert path.name in OF_A_FRAMEWORK or f"{name.rpartition('.')[2]}.py" not in OF_A_FRAMEWORK, name
            assert (
                beside
                or re.match(r"validation\.(probes|measures\.\w+(\.\w+_probe)?$)", name)
                or name.split(".")[0] in sys.stdlib_module_names
            ), name


@pytest.mark.parametrize("changed", ["probes/tool.py", "measures/node/facts_probe.py", "nvml/__init__.py"])
def test_the_digest_changes_with_any_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str) -> None:
    for source in entry.sources():
        copy = tmp_path / source.relative_to(ROOT / "validation")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    monkeypatch.setattr(entry, "__file__", str(tmp_path / "probes/__main__.py"))
    before = entry.digest()
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n")
    assert entry.digest() != before


LOG = "head\npacket, txTime(sec), rxTime(sec), rtt(usec)\n0, 1.0, 1.1, 40.5\n1, 2.0, 2.1, 41.5\n------------------\n"


def test_sockperf_log_is_read_whole_or_not_at_all() -> None:
    assert tcp_latency_probe.read_log(LOG) == [40.5, 41.5]
    for end in range(len(LOG) - 19):  # every cut before the closing line of dashes
        with pytest.raises((ValueError, IndexError)):
            tcp_latency_probe.read_log(LOG[:end])


def test_blocks_are_medians_in_order_of_time() -> None:
    assert tcp_latency_probe.block_medians([1, 2, 3, 4, 5, 60], blocks=2) == [2, 5]
    assert tcp_latency_probe.percentile(list(map(float, range(100))), 0.99) == 99


def bandwidth_arguments(**changed: object) -> tcp_bandwidth_probe.Asked:
    given = {"source": "10.0.0.1", "destination": "10.0.0.2", "port": 5201, "seconds": 3, "omit_s": 1}
    return make(tcp_bandwidth_probe.Asked, {**given, **changed})


def bandwidth_report() -> dict[str, object]:
    connected = [{"local_host": "10.0.0.1", "remote_host": "10.0.0.2"}]
    test = {"protocol": "TCP", "reverse": 0, "num_streams": 1, "duration": 3, "omit": 1}
    end = {"sum_sent": {"seconds": 3.0}, "sum_received": {"bytes": 10}}
    return {
        "start": {"test_start": test, "connected": connected},
        "end": end,
        "server_output_json": {"intervals": [1]},
    }


def test_iperf3_is_believed_only_when_it_did_what_was_asked() -> None:
    assert tcp_bandwidth_probe.wrong(bandwidth_arguments(), json.dumps(bandwidth_report())) is None
    assert "cannot be used" in str(tcp_bandwidth_probe.wrong(bandwidth_arguments(), "{"))
    assert "source address" in str(
        tcp_bandwidth_probe.wrong(bandwidth_arguments(source="10.0.0.9"), json.dumps(bandwidth_report()))
    )
    assert "opened 1 connection" in str(
        tcp_bandwidth_probe.wrong(bandwidth_arguments(streams=4), json.dumps(bandwidth_report()))
    )
    udp = bandwidth_report()
    udp["start"]["test_start"]["protocol"] = "UDP"  # type: ignore[index]
    assert "UDP" in str(tcp_bandwidth_probe.wrong(bandwidth_arguments(), json.dumps(udp)))
    short = bandwidth_report()
    short["end"]["sum_sent"]["seconds"] = 1.0  # type: ignore[index]
    assert "stopped after" in str(tcp_bandwidth_probe.wrong(bandwidth_arguments(), json.dumps(short)))


def training_arguments() -> training_short_probe.Asked:
    nodes = {"hosts": ["10.0.0.1:2", "10.0.0.2:2"], "networks": ["10.0.0.0/24"]}
    return make(training_short_probe.Asked, {**nodes, "ranks": 4, "warmup": 2, "steps": 3, "batch": 8})


def training_report() -> dict[str, object]:
    return {
        "world_size": 4,
        "hosts": ["a", "a", "b", "b"],
        "images_per_s": [1.0, 2.0, 3.0],
        "warmup": 2,
        "batch": 8,
        "loss_finite": True,
        "loss_first": 2.3,
        "loss_last": 1.0,
        "ranks_agree": True,
    }


def test_mpirun_is_told_to_use_the_fabric_and_the_training_sshd() -> None:
    line = " ".join(training_short_probe.command_for(training_arguments()))
    assert line.startswith("mpirun -np 4 -H 10.0.0.1:2,10.0.0.2:2 --bind-to none --map-by slot")
    assert "--mca plm_rsh_args -p 50000 -F /etc/elastic-ai/training/ssh_config" in line
    assert "--mca btl_tcp_if_include 10.0.0.0/24 --mca btl_base_verbose 1 " in line
    assert "--mca oob_tcp_if_include 10.0.0.0/24" in line
    many = make(training_short_probe.Asked, {**vars(training_arguments()), "ranks": 65})
    assert "verbose" not in " ".join(training_short_probe.command_for(many)), "a line for each two ranks"
    assert "yield" not in line, "real nodes have their cores for themselves"


def test_training_starts_in_the_container_and_dies_with_the_probe() -> None:
    args = training_arguments()
    command = training_short_probe.in_container(args.enter, training_short_probe.command_for(args))
    assert command[:6] == ["/usr/local/bin/elastic-ai-training-exec", "setpriv", "--pdeathsig", "KILL", "--", "mpirun"]
    assert "/usr/bin/python3 -I" in " ".join(command), "the container's Python, not a node's"


def test_training_without_a_container_is_a_failed_probe_that_says_so(tmp_path: Path) -> None:
    args = training_arguments()
    args.enter = str(tmp_path / "enter")
    Path(args.enter).write_text("#!/bin/sh\necho 'the training container does not run' >&2\nexit 125\n")
    Path(args.enter).chmod(0o755)
    doc = training_short_probe.probe(args)
    assert doc["returncode"] == 125
    assert "the training container does not run" in str(doc["error"])


def test_facts_read_the_training_from_inside_its_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "bin"
    inside.mkdir()
    for name, text in (
        ("mpirun", "mpirun (Open MPI) 4.1.4"),
        ("dpkg-query", "installed libnccl2 2.19.3-1+cuda12.2\ninstalled libcudnn8 8.9.7.29-1+cuda12.2\n"),
    ):
        (inside / name).write_text(f"#!/bin/sh\ncat <<E\n{text}\nE\n")
        (inside / name).chmod(0o755)
    enter = tmp_path / "enter"
    enter.write_text(f'#!/bin/sh\nPATH={inside}:$PATH exec "$@"\n')
    enter.chmod(0o755)
    monkeypatch.setattr(facts_probe, "TRAINING", str(enter))
    found = facts_probe.collect([])
    assert found["openmpi"] == "4.1.4"
    assert found["training_nccl"] == "2.19.3-1+cuda12.2"
    assert found["training_cudnn"] == "8.9.7.29-1+cuda12.2"
    monkeypatch.setattr(facts_probe, "TRAINING", str(tmp_path / "nothing"))
    assert facts_probe.collect([])["training_nccl"] == ""


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ('{"reference": "h/t:1", "digest": "sha256:ab"}', "h/t:1@sha256:ab"),
        ('{"reference": "h/t@sha256:ab", "digest": "sha256:ab"}', "h/t@sha256:ab"),
        ('{"reference": "h/t:1", "digest": ""}', "h/t:1"),
        ('{"reference": "h/t:1", "digest": null}', "h/t:1"),
        ('{"reference": null, "digest": "sha256:ab"}', "sha256:ab"),
        ("{}", ""),
        ("[]", ""),
        ("", ""),
        ("cut {", ""),
    ],
)
def test_facts_name_the_training_image_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, image: str
) -> None:
    (tmp_path / "image.json").write_text(text)
    assert facts_probe.training_image(tmp_path / "image.json") == image
    monkeypatch.setattr(facts_probe, "IMAGE", tmp_path / "image.json")
    assert facts_probe.collect([])["training_image"] == image


def test_training_is_believed_only_when_it_did_what_was_asked() -> None:
    assert training_short_probe.wrong(training_arguments(), training_report()) is None
    for key, value, words in (
        ("world_size", 1, "1 rank instead of 4"),
        ("hosts", ["a", "a", "a", "b"], "placed its ranks"),
        ("images_per_s", [1.0], "1 step instead of 3"),
        ("images_per_s", [1.0, float("nan"), 1.0], "not a number"),
        ("loss_finite", False, "loss that is not a number"),
        ("loss_last", 2.4, "did not learn"),
        ("ranks_agree", False, "different parameters"),
    ):
        assert words in str(training_short_probe.wrong(training_arguments(), {**training_report(), key: value}))


def test_singletons_instead_of_a_job_are_no_report() -> None:
    line = json.dumps(training_report()) + "\n"
    assert training_short_probe.report_of("noise\n" + line)["world_size"] == 4
    with pytest.raises(ValueError, match="4 reports"):
        training_short_probe.report_of(line * 4)


def test_rdma_devices_belong_to_an_interface_of_this_node(tmp_path: Path) -> None:
    (tmp_path / "net" / "fab0").mkdir(parents=True)
    for device, interface in (("mlx5_0", "fab0"), ("mlx5_1", "host_only")):
        (tmp_path / "infiniband" / device / "device" / "net" / interface).mkdir(parents=True)
    assert facts_probe.rdma_devices(tmp_path) == [{"name": "mlx5_0", "interfaces": ["fab0"]}]
    assert facts_probe.rdma_devices(tmp_path / "nothing") == []


@pytest.mark.parametrize(("said", "known"), [("10000", 10000), *((s, None) for s in ("-1", "", "0", "4294967295"))])
def test_a_speed_that_the_kernel_does_not_know_is_none(tmp_path: Path, said: str, known: int | None) -> None:
    folder = tmp_path / "class/net/fab0"
    folder.mkdir(parents=True)
    for name, text in (("operstate", "up"), ("mtu", "9000"), ("speed", said)):
        (folder / name).write_text(text + "\n")
    assert facts_probe.fabric_port("fab0", tmp_path) == {
        "interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": known, "rdma": None,
        "carrier_changes": None,
    }  # fmt: skip


def test_facts_name_what_is_absent(tmp_path: Path) -> None:
    assert facts_probe.fabric_port("fab7", tmp_path) == {"interface": "fab7", "operstate": "absent"}
    assert facts_probe.operating_system('ID=ubuntu\nVERSION_ID="24.04"\n') == "ubuntu 24.04"
    found = facts_probe.collect([])
    assert found["os"]
    assert found["kernel"]
    assert found["gpu_count"] == 0 or found["gpu_model"]
