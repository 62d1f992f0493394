"""What `toolkit validate` refuses before it measures: a fabric that the nodes' ports are not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.local_launcher import LocalLauncher
from tests.support.run_case import topology
from tests.support.site import NAMES, hardware, lab
from toolkit.acceptance import refuse_without_rdma
from toolkit.cli import cli
from toolkit.errors import UsageFault
from validation.execute import Remote
from validation.measures.node import facts_probe
from validation.model import Topology
from validation.probes import rdma_ports_sysfs
from validation.rules.fabric import load_fabric


class Answers(LocalLauncher):
    """Nodes whose facts probe says what the test says of their port: the link layer of its RDMA device, if any."""

    def __init__(self, ports: dict[str, str | None]) -> None:
        super().__init__()
        self.ports = ports

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        self.started.append((node, tuple(probe)))
        layer = self.ports[node]
        rdma = {"device": "rdma0", "port": 1, "link_layer": layer, "state": "ACTIVE"} if layer else None
        port = {"interface": "lo", "operstate": "up", "rdma": rdma}
        devices = [{"name": "rdma0", "interfaces": ["lo"]}] if layer else []
        document = {"facts": {"fabric_ports": [port], "rdma_devices": devices}, "error": None}
        return await Remote.spawn(node, [sys.executable, "-I", "-c", f"print({json.dumps(document)!r})"])


ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"


def refused(
    fabric: str,
    ports: dict[str, str | None],
    topo: Topology | None = None,
    suites: Sequence[str] = (),
    apart: bool = False,
) -> str:
    """What is said, "" when nothing is refused."""
    launcher = Answers(ports)
    try:
        asyncio.run(refuse_without_rdma(launcher, topo or topology(len(ports)), load_fabric(fabric), suites, apart))
    except UsageFault as fault:
        return str(fault)
    return ""


def test_a_look_at_rdma_alone_starts_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_probe, "run_tool", lambda *_, **__: pytest.fail("a tool was started"))
    args = facts_probe.Asked(interfaces=["lo"], rdma_only=True)
    assert facts_probe.probe(args)["facts"].keys() == {"rdma_devices", "fabric_ports"}
    launcher = Answers({"gpu1": ETHERNET, "gpu2": ETHERNET})
    asyncio.run(refuse_without_rdma(launcher, topology(2), load_fabric("roce40")))
    assert all(json.loads(probe[-1])["rdma_only"] for _, probe in launcher.started)


@pytest.mark.parametrize(("fabric", "port"), [("roce40", ETHERNET), ("ib-edr", INFINIBAND), ("tcp10", None)])
def test_ports_that_are_what_the_fabric_is_are_not_refused(fabric: str, port: str | None) -> None:
    assert refused(fabric, {"gpu1": port, "gpu2": port}) == ""


@pytest.mark.parametrize(
    ("fabric", "port", "layer", "instead"),
    [("ib-edr", ETHERNET, "Ethernet", "roce40"), ("roce40", INFINIBAND, "InfiniBand", "ib-edr")],
)
def test_another_link_layer_is_refused_with_each_ports_own(fabric: str, port: str, layer: str, instead: str) -> None:
    said = refused(fabric, {"gpu1": port, "gpu2": port})
    assert f"\n  gpu1: link layer of lo is {layer}\n  gpu2: link layer of lo is {layer}\n" in said
    assert "nothing was measured" in said
    assert instead in said.rpartition("what to do")[2]


def test_only_the_odd_port_is_named() -> None:
    said = refused("ib-edr", {"gpu1": INFINIBAND, "gpu2": ETHERNET})
    assert "1 of 2 nodes" in said
    assert "gpu1" not in said


def test_a_node_without_the_device_is_named() -> None:
    said = refused("roce40", {"gpu1": ETHERNET, "gpu2": None, "gpu3": ETHERNET})
    assert "1 of 3 nodes cannot do; nothing was measured:\n  gpu2: no RDMA device\n" in said


def test_a_port_that_carries_tcp_only_needs_no_device() -> None:
    ports = {"gpu1": ETHERNET, "gpu2": ETHERNET, "gpu3": None}
    assert refused("roce40", ports, topology(3, ["gpu3"])) == ""
    assert "gpu3: no RDMA device" in refused("roce40", ports)


def test_fewer_than_two_rdma_ports_are_refused_without_asking_a_node() -> None:
    for tcp_only, count in ((["gpu2"], "1 fabric port with"), (["gpu1", "gpu2"], "0 fabric ports with")):
        said = refused("roce40", {}, topology(2, tcp_only))
        assert count in said
        assert "rdma: false" in said
        assert "--fabric tcp10" in said


def test_some_nodes_of_an_accepted_site_are_no_site_with_too_few_rdma_ports() -> None:
    """The batches of an upgrade, beginning with the head alone; a server that was mended; a node that joins."""
    assert refused("roce40", {}, topology(1, ["gpu1"]), apart=True) == "", "a head without RDMA"
    assert refused("roce40", {"gpu1": ETHERNET}, topology(1), apart=True) == ""
    assert "gpu1: no RDMA device" in refused("roce40", {"gpu1": None}, topology(1), apart=True)
    assert "gpu1: link layer of lo is Ethernet" in refused("ib-edr", {"gpu1": ETHERNET}, topology(1), apart=True)


BARE = dict.fromkeys(NAMES)
TRAINING = ("training",)


@pytest.mark.parametrize("fabric", ["ib-edr", "roce40"])
def test_training_alone_is_rehearsed_over_tcp_in_a_lab_of_containers(fabric: str) -> None:
    assert refused(fabric, BARE, lab(), TRAINING) == ""
    for suites in ((), ("transport",), ("preflight", "training")):
        said = refused(fabric, BARE, lab(), suites)
        assert "no RDMA device" in said
        assert "suite training alone is rehearsed over TCP: --suite training" in said


@pytest.mark.parametrize("topo", [hardware(), lab(virtual="qemu"), lab().model_copy(update={"lab_link": None})])
def test_nodes_that_are_no_labs_containers_train_over_rdma_or_not_at_all(topo: Topology) -> None:
    said = refused("ib-edr", BARE, topo, TRAINING)
    assert "no RDMA device" in said
    assert "rehearsed over TCP" not in said


def test_the_plan_of_such_a_rehearsal_says_what_it_leaves_out(tmp_path: Path) -> None:
    nodes = "".join(
        f"    gpu{n}: {{ansible_host: 10.77.0.{n}, training_slots: 2, "
        f"fabric_ports: [{{interface: fab0, address: 10.78.0.{n}/24}}]}}\n"
        for n in (1, 2)
    )
    link = "elastic_ai_virtual: systemd-nspawn, lab_link: {rate_gbps: 1.0, rtt_max_us: 5000}"
    (tmp_path / "hosts.yml").write_text(f"gpu_servers:\n  vars: {{{link}}}\n  hosts:\n{nodes}")

    def plan_over(fabric: str) -> tuple[dict[str, Any], str]:
        words = ["validate", "-i", str(tmp_path), "--fabric", fabric, "--suite", "training", "--dry-run", "--json"]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["plans"][0], done.stderr

    found, said = plan_over("ib-edr")
    assert "is rehearsed over TCP, and what of it needs RDMA is not measured" in said
    assert {m["params"]["transport"] for m in found["measurements"]} == {"tcp"}
    served = {c for m in found["measurements"] for c in m["criteria"]}
    assert not served & {"tn.path", "tn.rdma", "tn.gdr"}
    left = " ".join(part["why"] if isinstance(part, dict) else str(part) for part in found["left_out"])
    assert all(f"({id_}): the first fabric port of gpu1, gpu2 is TCP-only" in left for id_ in ("tn.path", "tn.rdma"))
    assert [m["id"] for m in plan_over("tcp10")[0]["measurements"]] == [m["id"] for m in found["measurements"]]
    assert not plan_over("tcp10")[1]
    only = ["validate", "-i", str(tmp_path), "--suite", "training", "--dry-run", "--summary", "--json", "--fabric"]
    outlined = [json.loads(CliRunner().invoke(cli, [*only, fabric]).stdout) for fabric in ("ib-edr", "tcp10")]
    assert outlined[0]["outlines"][0]["steps"] == outlined[1]["outlines"][0]["steps"]


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def rxe(device: str = "rxe_fab0", interface: str = "fab0") -> dict[str, str]:
    """A Soft-RoCE port as the kernel shows it, its files' form taken from Debian 12's kernel 6.1."""
    port = f"class/infiniband/{device}/ports/1"
    return {
        f"class/infiniband/{device}/parent": f"{interface}\n",
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/link_layer": "Ethernet\n",
        f"{port}/rate": "2.5 Gb/sec (1X SDR)\n",
        f"{port}/gids/0": "fe80:0000:0000:0000:5054:00ff:fe00:0001\n",
        f"{port}/gids/1": "0000:0000:0000:0000:0000:ffff:0a4e:000d\n",
        f"{port}/gids/2": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        f"{port}/gid_attrs/types/0": "RoCE v2\n",
        f"{port}/gid_attrs/types/1": "RoCE v2\n",
        f"{port}/gid_attrs/ndevs/0": f"{interface}\n",
        f"{port}/gid_attrs/ndevs/1": f"{interface}\n",
        f"{port}/hw_counters/rcvd_seq_err": "0\n",
        f"{port}/hw_counters/lifespan": "10\n",
        f"class/net/{interface}/operstate": "up\n",
        f"class/net/{interface}/mtu": "9000\n",
    }


def test_the_device_is_found_by_its_interface_whatever_its_name(tmp_path: Path) -> None:
    sysfs = files(tmp_path, rxe("mlx5_7"))
    rdma = {"device": "mlx5_7", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE"}
    assert rdma_ports_sysfs.short("fab0", sysfs) == rdma
    assert rdma_ports_sysfs.short("fab1", sysfs) is None
    found: dict[str, Any] = rdma_ports_sysfs.state("fab0", sysfs)
    assert found["gids"] == [
        {"index": 0, "type": "RoCE v2", "gid": "fe80:0000:0000:0000:5054:00ff:fe00:0001", "interface": "fab0"},
        {"index": 1, "type": "RoCE v2", "gid": "0000:0000:0000:0000:0000:ffff:0a4e:000d", "interface": "fab0"},
    ]
    assert found["counters"] == {"rcvd_seq_err": 0}
    assert (found["rate_gbps"], found["rate_words"], found["physical_state"]) == (2.5, "1X SDR", "LinkUp")
    assert facts_probe.rdma_devices(sysfs / "class") == [{"name": "mlx5_7", "interfaces": ["fab0"]}]


def test_an_ipoib_interface_names_its_device_and_port(tmp_path: Path) -> None:
    device = "class/infiniband/mlx5_0"
    files(
        tmp_path,
        {
            f"{device}/ports/2/link_layer": "InfiniBand\n",
            f"{device}/ports/2/state": "2: INIT\n",
            "class/net/ib1/dev_port": "1\n",
            "class/net/ib1/device/infiniband/mlx5_0/node_type": "1: CA\n",
        },
    )
    rdma = {"device": "mlx5_0", "port": 2, "link_layer": "InfiniBand", "state": "INIT"}
    assert rdma_ports_sysfs.short("ib1", tmp_path) == rdma
