"""Both ends of an RDMA measurement brought together: the proof of a good one, the fault_side of a failed one."""

from __future__ import annotations

from pathlib import Path

from tests.support.local_launcher import LocalLauncher, execute
from tests.support.rdma_run import LIGHT, WRITE, ends, one, planned

DEADLINE = 124


def test_both_ends_make_a_result(tmp_path: Path) -> None:
    result = one(tmp_path, *ends("4.5-write_bw"), iterations=100)
    assert (result.status, result.error) == ("ok", None)
    assert result.values("rdma_write_bandwidth_gbps") == [0.098837]
    assert result.facts["peer_gid"] == "::ffff:a4e:d"
    assert result.facts["peer_received_packets"] == 3200
    assert (tmp_path / "raw" / WRITE / "gpu2.out").exists()


def test_a_way_that_the_counters_do_not_bear_out_is_refused_and_marked(tmp_path: Path) -> None:
    result = one(tmp_path, *ends("4.5-write_bw", server={"received_packets": 12}), iterations=100)
    assert (result.status, result.failure.code) == ("unparseable", "unproved")
    assert "the server's device received 12 packets" in str(result.error)
    assert result.facts["device"] == "rxe_fab0"


def test_the_server_that_died_of_its_limit_is_named_and_not_the_client_that_complains(tmp_path: Path) -> None:
    client, server = ends("4.5-write_bw", client={"fault": "other-end"}, server={"fault": "memlock"})
    client |= {"error": "the other end went away: Couldn't read remote address", "returncode": 1}
    server |= {"error": "the limit of lockable memory is too low: Couldn't allocate MR", "returncode": 1}
    result = one(tmp_path, client, server)
    assert (result.status, result.failure.code, result.failure.at) == ("failed", "memlock", "gpu2")
    assert result.error == "gpu2: the limit of lockable memory is too low: Couldn't allocate MR"


def test_packets_that_one_end_sent_and_the_other_never_saw_name_the_way(tmp_path: Path) -> None:
    lost = {"fault": "lost", "sent_packets": 9, "received_packets": 0}
    client, server = ends("4.5-write_bw", client=lost, server={"sent_packets": 9, "received_packets": 9})
    client |= {"error": "packets were sent again and again", "returncode": 1}
    result = one(tmp_path, client, server)
    assert (result.failure.code, result.failure.at, result.failure.towards) == ("lost", "", "gpu1")
    assert str(result.error).startswith("gpu2's RDMA port sent 9, gpu1's received none: a firewall (UDP 4791)")


def test_without_a_device_first_light_says_at_which_end_and_the_rest_is_not_tried(tmp_path: Path) -> None:
    whole, topo = planned(LIGHT, WRITE)
    launcher = LocalLauncher()
    progress = execute(tmp_path, whole, topo, launcher)
    light, write = progress.results[LIGHT], progress.results[WRITE]
    assert (light.status, light.failure.code, light.failure.at) == ("failed", "no-device", "gpu2")
    assert str(light.error).startswith("gpu2: no RDMA device on lo")
    assert write.failure.at == "gpu2"
    assert str(write.error).startswith("skipped, because rdma-first-light failed: gpu2: no RDMA device on lo")
    assert progress.began == [LIGHT]
    assert not [probe for _, probe in launcher.started if "rdma-bandwidth" in probe]


def test_a_port_that_went_down_in_mid_run_is_told_though_the_tool_hung_until_its_deadline(tmp_path: Path) -> None:
    client, server = ends("4.5-write_bw", client={"fault": "port-down"}, server={"fault": "stopped"})
    client |= {"error": "RDMA port rxe_fab0/1 on fab0 went DOWN in mid-run", "returncode": -15, "exit": DEADLINE}
    server |= {"error": "ended by signal 15 before its end", "returncode": -15}
    result = one(tmp_path, client, server)
    assert (result.status, result.failure.code, result.failure.at) == ("timeout", "port-down", "gpu1")
    assert str(result.error).endswith("s on gpu1: RDMA port rxe_fab0/1 on fab0 went DOWN in mid-run")
