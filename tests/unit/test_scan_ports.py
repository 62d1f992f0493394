"""Which interfaces of a machine have a cable: adapters with a switch of their own, functions, and odd names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import scan_answers
from toolkit import here
from toolkit.scan.answer import Answer, parse
from toolkit.scan.ports import Choice, choose
from validation.measures.node import inventory_scan_probe
from validation.probes import pcie, port_bytes, rdma, rdma_ports_sysfs
from validation.probes.tool import Ran

FUNCTION = "devices/pci0000:00/0000:00:01.0/0000:08:00.0"


class Machine:
    """A planted sysfs."""

    def __init__(self, root: Path) -> None:
        self.sysfs = root
        (root / "class/net").mkdir(parents=True)

    def write(self, path: Path, **files: str) -> Path:
        for name, text in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(f"{text}\n")
        return path

    def function(self, path: str = FUNCTION, rdma: str = "", **files: str) -> Path:
        made = self.write(self.sysfs / path, vendor="0x15b3", device="0x1021", numa_node="0", **files)
        if rdma:
            port = self.write(
                self.sysfs / "class/infiniband" / rdma / "ports/1", link_layer="Ethernet", state="4: ACTIVE"
            )
            self.write(port / "gid_attrs/ndevs")
            (made / "infiniband" / rdma).mkdir(parents=True)
        return made

    def net(self, name: str, device: Path | None, **files: str) -> None:
        net = self.sysfs / "class/net" / name
        self.write(net, type="1", operstate="up", address="02:00:00:00:00:01", uevent=f"INTERFACE={name}", **files)
        if device is not None:
            (net / "device").symlink_to(device)

    def gid(self, rdma: str, interface: str) -> None:
        self.write(self.sysfs / "class/infiniband" / rdma / "ports/1/gid_attrs/ndevs", **{"0": interface})

    def answer(self) -> Answer:
        found = [
            {**inventory_scan_probe.port(net.name, self.sysfs), "addresses": [], "managers": []}
            for net in sorted((self.sysfs / "class/net").glob("*"))
        ]
        answer = parse(scan_answers.node("gpu1", "198.51.100.31", ports=found))
        assert isinstance(answer, Answer), answer
        return answer

    def chosen(self) -> Choice:
        return choose(self.answer(), "198.51.100.31")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One port at 400 Gbit/s in the mode switchdev, with two representors and a virtual function."""
    made = Machine(tmp_path / "sys")
    function = made.function(rdma="mlx5_0")
    made.gid("mlx5_0", "enp8s0f0np0")
    made.net("enp8s0f0np0", function, phys_port_name="p0", phys_switch_id="aa", speed="400000", dev_port="0")
    made.net("enp8s0f0npf0vf0", function, phys_port_name="pf0vf0", phys_switch_id="aa", dev_port="0")
    made.net("eth1", function, phys_port_name="pf0vf1", phys_switch_id="aa", dev_port="0")
    virtual = made.function(f"{FUNCTION[:-12]}0000:08:00.2")
    (virtual / "physfn").symlink_to(function)
    made.net("enp8s0f0v0", virtual)
    return made


def reasons(choice: Choice) -> dict[str, str]:
    return {port.interface: why for port, why in choice.others}


def test_the_port_with_the_cable_is_proposed_alone(machine: Machine) -> None:
    choice = machine.chosen()
    assert [port.interface for port in choice.ports] == ["enp8s0f0np0"]
    assert reasons(choice) == {
        "enp8s0f0npf0vf0": "represents pf0vf0 in the adapter's switch",
        "eth1": "represents pf0vf1 in the adapter's switch",
        "enp8s0f0v0": "a virtual function",
    }
    assert not any("alike" in check for check in choice.checks)


@pytest.mark.parametrize(
    "name", ["pf0vf0", "c1pf0vf0", "pf0sf88", "c1pf0sf1", "pf1", "c1pf0", "pf0hpf", "pf0vfr3", "vf0", "c1vf2"]
)
def test_every_driver_s_name_of_a_representor(machine: Machine, name: str) -> None:
    machine.net("odd", machine.sysfs / FUNCTION, phys_port_name=name)
    assert reasons(machine.chosen())["odd"] == f"represents {name} in the adapter's switch"
    assert rdma_ports_sysfs.short("odd", machine.sysfs) is None, "the RDMA device is the port's"


@pytest.mark.parametrize("name", ["p0", "p1", "p0s1", "0", "c1p0", "sff"])
def test_a_port_whose_driver_names_it_is_a_port(tmp_path: Path, name: str) -> None:
    made = Machine(tmp_path)
    made.net("ens1", made.function(rdma="mlx5_0"), phys_port_name=name, phys_switch_id="aa", speed="400000")
    assert [port.interface for port in made.chosen().ports] == ["ens1"]


def test_drivers_that_do_not_name_their_representors(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"eth7": "driver: mlx5e_rep\n", "eth8": "driver: mlx5_core\n"}
    monkeypatch.setattr(
        inventory_scan_probe,
        "run_tool",
        lambda command, **_: Ran(list(command), 0, said.get(command[-1], "") if command[1] == "-i" else "", ""),
    )
    for name in said:
        machine.net(name, machine.sysfs / FUNCTION, phys_switch_id="aa", speed="400000")
    choice = machine.chosen()
    assert reasons(choice)["eth7"] == "a representor (driver mlx5e_rep)"
    assert "eth8" in [port.interface for port in choice.ports]


def test_a_scalable_function_is_no_port(machine: Machine) -> None:
    auxiliary = machine.write(machine.sysfs / FUNCTION / "mlx5_core.sf.4", sfnum="88")
    (auxiliary / "infiniband/mlx5_4").mkdir(parents=True)
    machine.write(machine.sysfs / "class/infiniband/mlx5_4/ports/1", link_layer="Ethernet", state="4: ACTIVE")
    machine.net("enp8s0f0s88", auxiliary, speed="400000")
    choice = machine.chosen()
    assert [port.interface for port in choice.ports] == ["enp8s0f0np0"]
    assert reasons(choice)["enp8s0f0s88"] == "a scalable function"


def test_a_child_of_an_infiniband_interface_is_no_port(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    function = made.function(rdma="mlx5_0")
    made.net("ib0", function, speed="400000", dev_port="0")
    made.net("ib0.8001", function, speed="400000", dev_port="0", parent="ib0")
    choice = made.chosen()
    assert [port.interface for port in choice.ports] == ["ib0"]
    assert reasons(choice)["ib0.8001"] == "a child of ib0"


def test_two_ports_of_one_function_are_two_ports(tmp_path: Path) -> None:
    """ConnectX-3: both on one PCI function and one RDMA device, told apart by dev_port."""
    made = Machine(tmp_path)
    function = made.function(rdma="mlx4_0")
    made.write(tmp_path / "class/infiniband/mlx4_0/ports/2", link_layer="Ethernet", state="1: DOWN")
    made.net("ens1", function, speed="40000", dev_port="0")
    made.net("ens1d1", function, speed="40000", dev_port="1")
    choice = made.chosen()
    assert [(p.interface, p.rdma.port if p.rdma else None) for p in choice.ports] == [("ens1", 1), ("ens1d1", 2)]


@pytest.mark.parametrize("domain", ["0000", "10000", "10001:e1", "c000000"])
def test_a_domain_of_any_length_is_a_pci_function(tmp_path: Path, domain: str) -> None:
    """Behind a volume manager (VMD) or another host bridge, domains have five digits and more."""
    domain = domain.split(":")[0]
    made = Machine(tmp_path)
    function = made.function(f"devices/pci0000:00/0000:00:0e.0/pci{domain}:00/{domain}:00:02.0/{domain}:01:00.0")
    made.net("ens9", function, speed="400000", numa_node="-1")
    found = pcie.function_of("ens9", tmp_path)
    assert found is not None
    assert pcie.describe(found)["address"] == f"{domain}:01:00.0"


def test_a_function_without_a_numa_node_has_none(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    function = made.function()
    (function / "numa_node").write_text("-1\n")
    made.net("ens9", function)
    (port,) = made.answer().ports
    assert port.card is not None
    assert port.card.numa is None


def test_other_readers_leave_representors_out_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write(machine.sysfs / "class/net/eth1/statistics", tx_bytes="5", rx_bytes="5")
    machine.write(machine.sysfs / "class/net/enp8s0f0np0/statistics", tx_bytes="5", rx_bytes="5")
    assert [name for way, name in port_bytes.read(machine.sysfs) if way == "ethernet"] == ["enp8s0f0np0"]
    monkeypatch.setattr(rdma, "CLASS", machine.sysfs / "class")
    assert rdma.ports_of("eth1") == []
    assert rdma.ports_of("enp8s0f0np0") == [("mlx5_0", 1)]

    def address(interface: str) -> Any:
        return here.ipaddress.IPv4Interface("192.0.2.1/24")

    monkeypatch.setattr(here, "_address", address)
    assert [port.interface for port in here.ports(machine.sysfs)] == ["enp8s0f0np0", "enp8s0f0v0"]
