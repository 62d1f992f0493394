"""RDMA probes: the device behind a port, what a failure means, who is at fault; with a made-up sysfs and real tools'
words."""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from validation.execute.fault_side import fault_side
from validation.kinds import job_for
from validation.measures.fabric import serve_probe
from validation.measures.rdma import rdma_first_light_probe, rdma_perftest_probe, rdma_serving_probe, rdma_ucx_probe
from validation.probes import __main__ as entry
from validation.probes import rdma
from validation.probes.asked import make
from validation.probes.tool import Ran

DATA = Path(__file__).parent.parent / "data" / "rdma"
V4 = "0000:0000:0000:0000:0000:ffff:0a4e:000d"  # 10.78.0.13
LINK_LOCAL = "fe80:0000:0000:0000:5054:00ff:fe00:0001"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Soft-RoCE device on fab0, as the kernel shows it; tools of this machine are out of reach."""
    monkeypatch.setattr(rdma, "CLASS", tmp_path / "class")
    port = tmp_path / "class/infiniband/rxe_fab0/ports/1"
    for leaf, text in (("state", "4: ACTIVE"), ("link_layer", "Ethernet"), ("rate", "2.5 Gb/sec (1X SDR)")):
        put(port / leaf, text)
    for index, (gid, kind) in enumerate(((LINK_LOCAL, "RoCE v2"), (V4, "RoCE v2"), (ZERO, ""))):
        put(port / "gids" / str(index), gid)
        put(port / "gid_attrs/types" / str(index), kind)
        put(port / "gid_attrs/ndevs" / str(index), "fab0" if kind else "")
    for name, value in (("sent_pkts", "100"), ("rcvd_pkts", "50"), ("lifespan", "10"), ("out_of_seq_request", "0")):
        put(port / "hw_counters" / name, value)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return port


def tool(sysfs: Path, name: str, script: str) -> None:
    """A stand-in tool in Python's own interpreter: only what a test needs of it."""
    path = sysfs.parents[4] / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def look(transport: str = "roce", interface: str = "fab0") -> rdma.Device:
    return rdma.look(interface, "10.78.0.13", transport)


def fault(**where: str) -> str:
    with pytest.raises(rdma.Fault) as caught:
        look(**where)
    return f"{caught.value.code}: {caught.value}"


def test_the_device_is_found_from_its_port_and_the_gid_from_its_address(sysfs: Path) -> None:
    device = look()
    assert (device.name, device.port, device.gid_index, device.gid_type) == ("rxe_fab0", 1, 1, "RoCE v2")
    assert device.facts()["gid"] == "::ffff:a4e:d"
    assert device.facts()["link_layer"] == "Ethernet"


def test_soft_roce_is_found_by_its_own_word_while_its_gid_table_is_empty(sysfs: Path) -> None:
    put(sysfs.parents[1] / "parent", "fab0")
    for index in (0, 1):
        put(sysfs / "gid_attrs/ndevs" / str(index), "")
    assert rdma.ports_of("fab0") == [("rxe_fab0", 1)]
    assert rdma.ports_of("fab1") == []
    put(sysfs / "state", "1: DOWN")
    assert fault().startswith("port-down")


def test_a_port_without_a_device_is_a_fault_that_names_what_there_is(sysfs: Path) -> None:
    assert fault(interface="fab1") == "no-device: no RDMA device on fab1 (there is rxe_fab0)"


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED"])
def test_a_port_that_is_not_active(sysfs: Path, state: str) -> None:
    put(sysfs / "state", state)
    assert fault().startswith(f"port-down: RDMA port rxe_fab0/1 on fab0 is {state[3:]}, not ACTIVE")


def test_a_gid_of_roce_version_1_is_not_taken(sysfs: Path) -> None:
    put(sysfs / "gid_attrs/types/1", "IB/RoCE v1")
    assert fault() == "gid-type: fab0: no RoCE v2 GID for 10.78.0.13 (index 1 is IB/RoCE v1)"
    put(sysfs / "gids/3", V4)  # real adapters have both, one after the other
    put(sysfs / "gid_attrs/types/3", "RoCE v2")
    put(sysfs / "gid_attrs/ndevs/3", "fab0")
    assert look().gid_index == 3


def test_an_address_that_is_not_in_the_gid_table(sysfs: Path) -> None:
    put(sysfs / "gids/1", ZERO)
    assert fault() == "no-gid: fab0: its GID table has no entry for 10.78.0.13"
    put(sysfs / "gids/1", V4)
    put(sysfs / "gid_attrs/ndevs/1", "fab0.100")  # the same address on another interface's entry
    assert fault().startswith("no-gid")


def test_the_link_layer_must_be_the_fabrics(sysfs: Path) -> None:
    assert fault(transport="ib") == "link-layer: RDMA port rxe_fab0/1 on fab0 is Ethernet, the fabric is InfiniBand"


def test_an_infiniband_port_is_found_by_its_ipoib_interface(sysfs: Path) -> None:
    root = sysfs.parents[3]
    port = root / "infiniband/mlx5_0/ports/1"
    for leaf, text in (("state", "4: ACTIVE"), ("link_layer", "InfiniBand"), ("gids/0", LINK_LOCAL)):
        put(port / leaf, text)
    (root / "net/ib0/device/infiniband/mlx5_0").mkdir(parents=True)
    put(root / "net/ib0/dev_port", "0")
    device = look("ib", "ib0")
    assert (device.name, device.port, device.gid_index, device.gid_type) == ("mlx5_0", 1, 0, "")
    put(port / "state", "2: INIT")
    assert "no subnet manager?" in fault(transport="ib", interface="ib0")


def test_counters_tell_what_went_over_the_port(sysfs: Path) -> None:
    device = look()
    before = rdma.counters(device)
    assert "hw_counters/lifespan" not in before
    put(sysfs / "hw_counters/sent_pkts", "180")
    put(sysfs / "hw_counters/rcvd_pkts", "30")  # cleared in between: not a number of packets
    facts = rdma.counted(device, before)
    assert facts == {"counters": {"hw_counters/sent_pkts": 80}}
    put(sysfs / "hw_counters/rcvd_pkts", "70")
    assert rdma.counted(device, before) | {"counters": 0} == {
        "sent_packets": 80, "received_packets": 20, "counters": 0,
    }  # fmt: skip
    assert rdma.traffic({"counters/port_xmit_data": 5, "counters/port_rcv_data": 6}) == {
        "sent_bytes": 20, "received_bytes": 24,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("4.5-memlock.err", "memlock"),
        ("pingpong-memlock.err", "memlock"),
        ("4.5-no-device.err", "no-device"),
        ("pingpong-no-device.err", "no-device"),
        ("ucx-1.13-refused.out", "connect"),
        ("4.5-refused.err", "connect"),
        ("4.5-cm-refused.err", "connect"),
        ("pingpong-refused.err", "connect"),
        ("4.5-other-end.err", "other-end"),
        ("4.5-bidirectional.err", "completion"),
        ("constructed-retry.err", "lost"),
        ("constructed-pingpong-retry.err", "lost"),
        ("constructed-port-down.err", "port-down"),
        ("constructed-pingpong-rtr.err", "path"),
    ],
)
def test_what_tools_say_of_their_failure(name: str, code: str) -> None:
    found = rdma.explain(Ran(["ib_write_bw"], 1, "", (DATA / f"broken-{name}").read_text()))
    assert found.code == code
    assert str(found).count("\n") == 0


def test_a_tool_that_is_missing_killed_or_silent() -> None:
    assert rdma.explain(Ran(["x"], 0, "", "")) is None
    for returncode, code in ((127, "tool-missing"), (-15, "stopped"), (1, "tool")):
        assert rdma.explain(Ran(["x"], returncode, "", "")).code == code  # type: ignore[union-attr]


ENDS = {"interface": "fab0", "address": "10.78.0.13", "peer": "10.78.0.14", "port": 18515, "transport": "roce"}


def arguments(name: str, **more: Any) -> Any:
    return entry.parse([name, json.dumps({**ENDS, **more})]).asked


def test_both_ends_are_told_device_port_and_gid(sysfs: Path) -> None:
    args = arguments("rdma-bandwidth", iterations=100, qps=2, bidirectional=True)
    line = " ".join(rdma_perftest_probe.command_for(args, look(), "10.78.0.14"))
    assert line.startswith("ib_write_bw -d rxe_fab0 -i 1 -p 18515 -F -x 1 -s 65536 -n 100 --report_gbits -q 2 -b")
    assert line.endswith(" 10.78.0.14")
    cm = arguments("rdma-bandwidth", op="read", cm="rdma_cm", seconds=3, size_bytes=0)
    line = " ".join(rdma_perftest_probe.command_for(cm, look(), None))
    assert line == "ib_read_bw -d rxe_fab0 -i 1 -p 18515 -F -R -a -D 3 --report_gbits -q 1"
    light = " ".join(rdma_first_light_probe.command_for(arguments("rdma-first-light"), look(), None, 4096))
    assert light == "ibv_rc_pingpong -d rxe_fab0 -i 1 -p 18515 -m 4096 -s 4096 -n 1000 -c -g 1"
    ucx = rdma_ucx_probe.command_for(arguments("rdma-ucx"), look(), "10.78.0.14")
    assert ucx[:2] == ["ucx_perftest", "10.78.0.14"]
    assert ucx[-4:] == ["-d", "rxe_fab0:1", "-x", "rc_verbs"]
    tag = arguments("rdma-ucx", ucx_test="tag_bw")
    assert "-x" not in rdma_ucx_probe.command_for(tag, look(), None)
    environment = rdma_ucx_probe.environment(tag, look())
    assert environment["UCX_NET_DEVICES"] == "rxe_fab0:1"
    assert environment["UCX_IB_GID_INDEX"] == "1"
    assert "tcp" not in environment["UCX_TLS"]


def test_a_run_reports_device_counters_and_fault(sysfs: Path) -> None:
    tool(sysfs, "ib_write_bw", f'case "$1" in --help) exit 0;; esac; echo 101 > {sysfs}/hw_counters/sent_pkts; exit 0')
    doc = rdma_perftest_probe.probe(arguments("rdma-bandwidth"))
    assert doc["error"] is None
    assert doc["facts"]["sent_packets"] == 1
    assert doc["facts"]["device"] == "rxe_fab0"
    assert "fault" not in doc["facts"]
    tool(sysfs, "ib_write_bw", f"/bin/cat {DATA}/broken-4.5-memlock.err >&2; exit 1")
    doc = rdma_perftest_probe.probe(arguments("rdma-bandwidth"))
    assert doc["facts"]["fault"] == "memlock"
    assert "limit of lockable memory is too low" in str(doc["error"])
    assert rdma.memlock() in str(doc["error"])


def test_a_port_that_goes_down_in_mid_run_is_what_is_told(sysfs: Path) -> None:
    tool(sysfs, "ib_write_bw", f"echo '1: DOWN' > {sysfs}/state; echo ' Failed status 12: wr_id 0' >&2; exit 1")
    doc = rdma_perftest_probe.probe(arguments("rdma-bandwidth"))
    assert doc["facts"]["fault"] == "port-down"
    assert "went DOWN in mid-run" in str(doc["error"])


def test_a_missing_tool_is_said(sysfs: Path) -> None:
    for name, program in (("rdma-bandwidth", "ib_write_bw"), ("rdma-ucx", "ucx_perftest")):
        doc = {"rdma-bandwidth": rdma_perftest_probe, "rdma-ucx": rdma_ucx_probe}[name].probe(arguments(name))  # type: ignore[attr-defined]
        assert doc["facts"]["fault"] == "tool-missing"
        assert f"{program} is not installed" in str(doc["error"])


def devinfo(sysfs: Path, mtu: int) -> None:
    tool(sysfs, "ibv_devinfo", f'echo "			active_mtu:		{mtu} (5)"')


def test_first_light_wants_the_fabrics_rdma_mtu(sysfs: Path) -> None:
    tool(sysfs, "ibv_rc_pingpong", "exit 0")
    devinfo(sysfs, 1024)
    doc = rdma_first_light_probe.probe(arguments("rdma-first-light", mtu=4096))
    assert doc["facts"]["fault"] == "mtu"
    assert "RDMA MTU of rxe_fab0 on fab0 is 1024, 4096 wanted" in str(doc["error"])
    devinfo(sysfs, 4096)
    doc = rdma_first_light_probe.probe(arguments("rdma-first-light", mtu=4096))
    assert doc["error"] is None
    assert doc["facts"]["active_mtu"] == 4096


def test_rdma_cm_on_roce_version_1_is_refused(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "cm_mode", lambda device: "IB/RoCE v1")
    doc = rdma_perftest_probe.probe(arguments("rdma-bandwidth", cm="rdma_cm"))
    assert doc["facts"]["fault"] == "gid-type"
    assert "rdma_cm on rxe_fab0 uses IB/RoCE v1" in str(doc["error"])


def serving(port: int) -> serve_probe.Asked:
    return serve_probe.Asked(tool="rdma-bandwidth", asked={**ENDS, "port": port, "iterations": 100})


LISTENER = "import socket,time; s=socket.create_server(('', {port})); time.sleep({wait})"


def listener(sysfs: Path, port: int, wait: float) -> None:
    import sys

    code = LISTENER.format(port=port, wait=wait)
    tool(sysfs, "ib_write_bw", f'exec {sys.executable} -c "{code}"')


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_server_is_ready_when_it_listens_on_whatever_address(sysfs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    listener(sysfs, port, 1.5)
    doc = serve_probe.probe(serving(port))
    assert '{"ready": true}' in capsys.readouterr().out
    assert doc["error"] is None
    assert doc["facts"]["device"] == "rxe_fab0"


def test_a_server_that_dies_or_never_listens(
    sysfs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma_serving_probe, "LISTEN_TIMEOUT_S", 0.3)
    tool(sysfs, "ib_write_bw", 'echo "Couldn\'t allocate MR" >&2; exit 1')
    doc = serve_probe.probe(serving(free_port()))
    assert doc["facts"]["fault"] == "memlock"
    tool(sysfs, "ib_write_bw", "exec /bin/sleep 20")
    doc = serve_probe.probe(serving(free_port()))
    assert doc["error"]
    assert "ready" not in capsys.readouterr().out


def test_listening_through_rdma_cm_is_seen_in_the_kernels_list(sysfs: Path) -> None:
    pid = os.getpid()
    tool(
        sysfs,
        "rdma",
        f"echo 'link rxe_fab0/- cm-idn 18 state LISTEN ps TCP pid {pid} comm ib_read_bw src-addr 0.0.0.0:18515 '",
    )
    assert rdma_serving_probe.cm_listens(pid, 0)
    assert not rdma_serving_probe.cm_listens(pid + 1, 0)
    tool(sysfs, "rdma", f"echo 'link rxe_fab0/1 cm-idn 0 state IDLE ps TCP pid {pid} comm x'")
    assert not rdma_serving_probe.cm_listens(pid, 0)


# --- which end --------------------------------------------------------------------------------------------------------


def said(code: str = "", **facts: Any) -> Any:
    return {"error": f"words of {code}" if code else None, "facts": {**({"fault": code} if code else {}), **facts}}


@pytest.mark.parametrize(
    ("client", "server", "code", "end"),
    [
        (said("memlock"), said("other-end"), "memlock", "client"),
        (said("other-end"), said("memlock"), "memlock", "server"),
        (said("lost", sent_packets=9, received_packets=0), said(received_packets=0, sent_packets=0), "lost", "there"),
        (said("lost", sent_packets=9, received_packets=0), said(received_packets=9, sent_packets=9), "lost", "back"),
        (said("lost", sent_packets=9, received_packets=0), said(received_packets=9, sent_packets=0), "lost", "server"),
        (said("lost", sent_packets=0, received_packets=0), said(received_packets=0, sent_packets=0), "lost", "client"),
        (said("lost", sent_packets=9, received_packets=3), said(received_packets=9, sent_packets=9), "lost", "between"),
        (said("lost"), None, "lost", "between"),
        (said("connect"), said("stopped"), "connect", "between"),
        (said("stopped"), said("port-down"), "port-down", "server"),
    ],
)
def test_the_fault_side(client: Any, server: Any, code: str, end: str) -> None:
    found = fault_side(client, server)
    assert (found.code, found.end) == (code, end)


def test_an_unproved_result_is_nobodys_fault_and_no_report_is_no_news() -> None:
    assert fault_side(said(), said(), unproved=True).code == "unproved"  # type: ignore[union-attr]
    assert fault_side(None, None) is None


def test_every_planned_run_is_a_command_that_both_ends_understand() -> None:
    from tests.support.rdma_case import TRANSPORT, VM_LAB, VM_PLAN, rdma
    from tests.support.site import REAL, plan_of

    for topology, plan in ((VM_LAB, VM_PLAN), (REAL, plan_of(REAL, TRANSPORT, "roce100"))):
        for m in rdma(plan):
            job = job_for(m, topology)
            client, serving_end = (entry.parse(list(call.words)).asked for call in (job.probe, job.server))
            server = make(rdma_serving_probe.ENDS[serving_end.tool], serving_end.asked)
            assert (client.address, client.peer) == (server.peer, server.address)
            swapped = replace(client, interface=server.interface, address=server.address, peer=server.peer)
            assert swapped == server, "the same program, told the same, at both ends"
