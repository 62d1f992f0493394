"""Adapters of fabric ports: MaxReadReq in a configuration space made by the specification, read, set and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.site import ADAPTER, NIC, REAL, REAL_FACTS, criterion, plan_of, results_of, verdict_of, with_facts
from validation.measures.node import facts_probe
from validation.model import Port
from validation.probes import pcie

PLAN = plan_of(REAL, ["preflight"])
program: Any = load("roles/fabric/files/elastic_ai_read_request.py")


def space(code: int, length: int = 256) -> bytes:
    """A function whose first capability is power management and whose second is PCI Express, Device Control 0xN936."""
    made = bytearray(256)
    made[0x06], made[0x34] = 0x10, 0x40
    made[0x40:0x42] = bytes((0x01, 0x60))
    made[0x60:0x62] = bytes((0x10, 0x00))
    made[0x68:0x6A] = (0x0936 | code << 12).to_bytes(2, "little")
    return bytes(made[:length])


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    function = tmp_path / "sys/devices/pci0000:3a/0000:3a:00.0" / NIC["address"]
    (function / "infiniband/mlx5_0").mkdir(parents=True)
    (function / "config").write_bytes(space(2))
    (function / "infiniband/mlx5_0/fw_ver").write_text("14.32.1010\n")
    for name, value in zip(
        ("vendor", "device", "subsystem_vendor", "subsystem_device"), ADAPTER["board"].split(), strict=True
    ):
        (function / name).write_text(f"{value}\n")
    for name in ("fab0", "fab0.80"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    (tmp_path / "sys/class/net/fab0/type").write_text("1\n")
    (tmp_path / "sys/class/net/fab0/device").symlink_to(function)
    (tmp_path / "sys/class/net/fab0.80/lower_fab0").symlink_to(tmp_path / "sys/class/net/fab0")
    return tmp_path / "sys"


def config(sysfs: Path) -> Path:
    return sysfs / "class/net/fab0/device/config"


def test_the_probe_reads_what_an_adapter_is_set_to(sysfs: Path) -> None:
    (card,) = pcie.collect(["fab0"], sysfs)
    assert {key: card[key] for key in ADAPTER} == ADAPTER


def test_a_vlans_card_is_that_of_the_port_below(sysfs: Path) -> None:
    assert pcie.collect(["fab0.80"], sysfs)[0]["address"] == NIC["address"]


@pytest.mark.parametrize("bad", [space(2, 64), space(7), b"", bytes(256), space(2)[:0x41] + bytes((0x40,)) * 200])
def test_a_configuration_space_that_does_not_tell_is_left_open(sysfs: Path, bad: bytes) -> None:
    config(sysfs).write_bytes(bad)
    assert pcie.collect(["fab0"], sysfs)[0]["read_request_bytes"] is None


@pytest.mark.parametrize("port", ["fab0", "fab0.80"])
def test_it_is_set_and_put_back_and_nothing_else_is_touched(sysfs: Path, tmp_path: Path, port: str) -> None:
    kept = tmp_path / "run/read-request"
    program.main(["set", port, "4096"], sysfs, kept)
    assert config(sysfs).read_bytes() == space(5)
    program.main(["set", port, "2048"], sysfs, kept)
    program.main(["restore", port], sysfs, kept)
    assert config(sysfs).read_bytes() == space(2), "what it had before the first setting"
    assert not kept.exists()


def test_a_kernel_that_is_locked_down_is_said_in_words(
    sysfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(program.Path, "open", locked)
    monkeypatch.setattr(program, "control", lambda _: (0x48, 0x2000))
    with pytest.raises(SystemExit, match=r"Secure Boot locks it down.*Operation not permitted"):
        program.main(["set", "fab0", "4096"], sysfs, tmp_path / "run")


def test_a_port_without_a_card_is_named(sysfs: Path, tmp_path: Path) -> None:
    (sysfs / "class/net/veth0").mkdir()
    with pytest.raises(SystemExit, match="veth0: no PCI device"):
        program.main(["set", "veth0", "4096"], sysfs, tmp_path / "run")


def judged(**odd: Any) -> Any:
    """pf.nic where gpu2's adapter has these values in place of those that all others have."""
    results = [
        with_facts(r, pci=[{**NIC, **(odd if r.measurement == "facts.gpu2" else {})}])
        if r.measurement.startswith("facts.")
        else r
        for r in results_of(PLAN, facts=REAL_FACTS)
    ]
    return criterion(verdict_of(REAL, PLAN, results), "pf.nic")


def test_adapters_that_are_alike_pass_and_say_what_they_are() -> None:
    found = judged()
    assert found.verdict == "pass", found.reason
    assert "firmware 14.32.1010, link layer Ethernet, largest read request in bytes 512" in found.judgements[0].text


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"firmware": "28.35.2000"}, "has firmware 28.35.2000, others of its model 14.32.1010"),
        ({"link_layer": "InfiniBand"}, "has link layer InfiniBand, others of its model Ethernet"),
        ({"read_request_bytes": 4096}, "has largest read request in bytes 4096, others of its model 512"),
    ],
)
def test_the_odd_one_fails_and_is_named_with_what_it_has(odd: dict[str, Any], words: str) -> None:
    bad = [j for j in judged(**odd).judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == ["gpu2"]
    assert words in bad[0].reason


@pytest.mark.parametrize("odd", ["", "gpu2"])
def test_a_card_of_two_layers_has_infiniband_where_it_carries_rdma_and_ethernet_elsewhere(odd: str) -> None:
    """Two ports with RDMA and one without, all of one model: the layer of each is that of what it carries."""
    ports = [Port(interface=f"fab{n}", address=f"10.78.{n}.1", prefix=24, rdma=n < 2) for n in range(3)]
    nodes = tuple(
        n.model_copy(update={"ports": tuple(p.model_copy(update={"address": f"{p.address}{i}"}) for p in ports)})
        for i, n in enumerate(REAL.nodes)
    )
    topology = REAL.model_copy(update={"nodes": nodes})
    plan = plan_of(topology, ("preflight",))
    cards = [
        {
            **NIC,
            "interface": f"fab{n}",
            "address": f"0000:3b:00.{n}",
            "link_layer": "Ethernet" if n == 2 else "InfiniBand",
        }
        for n in range(3)
    ]
    results = [
        with_facts(r, pci=[{**c, "link_layer": "Ethernet"} if r.measurement == f"facts.{odd}" else c for c in cards])
        if r.measurement.startswith("facts.")
        else r
        for r in results_of(plan, facts=REAL_FACTS)
    ]
    found = criterion(verdict_of(topology, plan, results), "pf.nic")
    bad = [j for j in found.judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == [odd] * bool(odd), [j.reason for j in bad]
    assert all("fab2" not in j.reason for j in bad)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"read_request_bytes": None}, "largest read request in bytes of fab0 (0000:3b:00.0) could not be read"),
        ({"firmware": ""}, "firmware of fab0 (0000:3b:00.0) could not be read"),
    ],
)
def test_what_nobody_can_tell_or_compare_is_not_measured(odd: dict[str, Any], words: str) -> None:
    (mine,) = of_gpu2(**odd)
    assert (mine.verdict, mine.reason_code) == ("not-measured", "missing-metric")
    assert words in mine.reason


def of_gpu2(**odd: Any) -> list[Any]:
    return [j for j in judged(**odd).judgements if j.subject == "gpu2"]


def test_an_adapter_without_a_second_one_of_its_model_has_nothing_to_be_compared_with() -> None:
    (mine,) = of_gpu2(board="0x8086 0x1592 0x1028 0x0000", firmware="4.20")
    assert mine.verdict == "not-applicable"
    assert "firmware 4.20" in mine.text, "and is shown"


def test_a_declared_port_that_the_facts_do_not_show_is_not_measured() -> None:
    (mine,) = of_gpu2(interface="other")
    assert (mine.verdict, "nothing is shown of fab0" in mine.reason) == ("not-measured", True)


def test_firmware_of_an_adapter_without_rdma_is_asked_of_ethtool(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"fab0": "driver: ixgbe\nfirmware-version: 0x80000f32, 19.0.12\n", "fab1": "firmware-version: N/A\n"}
    monkeypatch.setattr(facts_probe, "_say", lambda *command: said[command[-1]])
    asked = [{"what": "nic", "interface": name, "firmware": ""} for name in said]
    assert [facts_probe.with_firmware(card)["firmware"] for card in asked] == ["0x80000f32, 19.0.12", ""]
    assert facts_probe.with_firmware({"what": "nic", "interface": "veth"}) == {"what": "nic", "interface": "veth"}
