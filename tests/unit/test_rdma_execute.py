"""Both ends of an RDMA measurement brought together: the proof of a good one, the fault_side of a failed one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from local_launcher import LocalLauncher, execute
from run_case import only, topology
from test_rdma_parsers import CASES, doc

from validation.catalogue import load_criteria
from validation.execute import Remote
from validation.fabric import load_fabric
from validation.model import Plan, Result, Topology
from validation.suites import make_plan

LIGHT, WRITE = "rdma-first-light.gpu1-lo.gpu2-lo", "rdma-bandwidth.write.gpu1-lo.gpu2-lo"
# Prints that it is ready, then its document when the client has ended or when it is stopped, as a server does.
SERVER = (
    "import sys,time; print('{{\"ready\": true}}', flush=True); time.sleep({wait}); print({doc!r}); sys.exit({code})"
)
CLIENT = "import sys; sys.stdin.readline(); print({doc!r}); sys.exit({code})"
DEADLINE = 124


class Scripted(LocalLauncher):
    """Probes that say what a test wants: (client's document, server's document)."""

    def __init__(self, client: dict[str, Any], server: dict[str, Any]) -> None:
        super().__init__()
        self.client, self.server = client, server

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        self.started.append((node, tuple(probe)))
        serves = "serve" in probe
        said = self.server if serves else self.client
        code = SERVER if serves else CLIENT
        ended = said.get("exit", 1 if said["error"] else 0)
        script = code.format(doc=json.dumps(said), code=ended, wait=0.3)
        remote = await Remote.spawn(node, [sys.executable, "-I", "-c", script])
        self.running.append(remote)
        return remote


def planned(*ids: str) -> tuple[Plan, Topology]:
    topo = topology(2)
    return only(make_plan("r", topo, load_fabric("roce40"), load_criteria(), ("transport",)), *ids), topo


def ends(case: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Documents of both ends, from a recording."""
    kind, text, facts, _ = CASES[case]
    mine = {k: v for k, v in facts.items() if k != "peer"}
    client = {**doc(kind, text), "facts": {**mine, **changes.get("client", {})}}
    server = {**doc("serve", ""), "facts": {**facts["peer"], **changes.get("server", {})}}
    return client, server


def one(run_dir: Path, client: dict[str, Any], server: dict[str, Any], id_: str = WRITE, **params: Any) -> Result:
    whole, topo = planned(id_)
    measurement = whole.measurements[0]
    given = {**measurement.params, **params}
    whole = whole.model_copy(update={"measurements": (measurement.model_copy(update={"params": given}),)})
    return execute(run_dir, whole, topo, Scripted(client, server)).results[id_]


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
    assert str(write.error).startswith("not tried, for rdma-first-light failed: gpu2: no RDMA device on lo")
    assert progress.began == [LIGHT]
    assert not [probe for _, probe in launcher.started if "rdma-bandwidth" in probe]


def test_a_port_that_went_down_in_mid_run_is_told_though_the_tool_hung_until_its_deadline(tmp_path: Path) -> None:
    client, server = ends("4.5-write_bw", client={"fault": "port-down"}, server={"fault": "stopped"})
    client |= {"error": "RDMA port rxe_fab0/1 on fab0 went DOWN in mid-run", "returncode": -15, "exit": DEADLINE}
    server |= {"error": "ended by signal 15 before its end", "returncode": -15}
    result = one(tmp_path, client, server)
    assert (result.status, result.failure.code, result.failure.at) == ("timeout", "port-down", "gpu1")
    assert str(result.error).endswith("s on gpu1: RDMA port rxe_fab0/1 on fab0 went DOWN in mid-run")
