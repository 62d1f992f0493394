"""Fabric profiles: all there, every figure with a source, bounds that follow from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.fabric import (
    Fabric,
    fabric_names,
    fabric_text,
    load_fabric,
    tcp_bandwidth_bound,
    tcp_payload_share,
    tcp_rtt_bound,
)
from validation.load import ConfigError
from validation.model import LabLink

NAMES = {
    "tcp10", "roce10", "roce40", "roce100", "ib-fdr", "ib-edr", "vmxnet3-10", "pvrdma100",
    "tcp25", "tcp100", "roce25", "roce200", "roce400", "ib-hdr", "ib-ndr",
}  # fmt: skip
LINK = LabLink(rate_gbps=1.0, rtt_max_us=800)


def test_all_profiles_of_the_design_exist():
    assert set(fabric_names()) == NAMES
    assert len(fabric_names()) == len(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_profile(name):
    fabric = load_fabric(name)
    assert fabric.name == name
    assert fabric.needs_rdma == (fabric.transport != "tcp")
    assert all(v for v in fabric.sources.model_dump(exclude={"rdma_mtu"}).values())
    assert f"name: {name}\n" in fabric_text(name)
    bound = tcp_bandwidth_bound(fabric, None)
    if fabric.link_layer == "Ethernet":
        assert bound.floor == pytest.approx(0.9 * fabric.line_rate_gbps)
        assert bound.floor < bound.ceiling < fabric.line_rate_gbps
    else:
        assert bound.floor is None
        assert bound.ceiling is None


@pytest.mark.parametrize(
    ("mtu", "rate", "payload"), [(1500, 40, 37.7), (9000, 40, 39.6), (1500, 25, 23.5), (9000, 400, 396.0)]
)
def test_tcp_ceiling(mtu, rate, payload):
    assert rate * tcp_payload_share(mtu) == pytest.approx(payload, rel=0.003)


@pytest.mark.parametrize(
    ("name", "payload"), [("roce25", 24.51), ("roce40", 39.2), ("roce100", 98.0), ("roce400", 392.2), ("ib-edr", 99.4)]
)
def test_rdma_ceiling(name, payload):
    assert load_fabric(name).rdma_ceiling_gbps == pytest.approx(payload, rel=0.001)
    assert load_fabric("tcp10").rdma_ceiling_gbps is None


def test_the_bound_is_derived_step_by_step():
    bound = tcp_bandwidth_bound(load_fabric("tcp10"), None)
    words = "\n".join(bound.derivation)
    for step in ("line rate of tcp10: 10 Gbit/s", "(9000-52)/(9000+38) = 9.9 ", "0.9 of the line rate", "= 9 Gbit/s"):
        assert step in words
    assert bound.nominal is None


def test_a_rehearsal_takes_the_labs_rate_and_says_both():
    bound = tcp_bandwidth_bound(load_fabric("tcp10"), LINK)
    assert bound.ceiling == pytest.approx(0.9900, abs=1e-4)
    assert bound.floor == pytest.approx(0.95 * bound.ceiling)
    assert "1 Gbit/s" in bound.derivation[0]
    assert "tcp10 on hardware: floor 9 Gbit/s" in bound.nominal


@given(rate=st.floats(0.01, 100), error=st.floats(-0.03, 0.005))
def test_within_3_percent_of_truth_passes_and_a_tenth_fails(rate, error):
    bound = tcp_bandwidth_bound(load_fabric("tcp100"), LabLink(rate_gbps=rate, rtt_max_us=1))
    truth = bound.ceiling
    assert bound.floor <= truth * (1 + error) <= truth * 1.005 * (1 + 1e-9)
    assert truth / 10 < bound.floor


def test_latency_bound():
    fabric = load_fabric("roce40")
    assert tcp_rtt_bound(fabric, None).maximum == 50
    rehearsal = tcp_rtt_bound(fabric, LINK)
    assert rehearsal.maximum == 800
    assert "at most 50 us" in rehearsal.nominal
    assert tcp_rtt_bound(fabric.model_copy(update={"tcp_rtt": None}), None).maximum is None


@pytest.mark.parametrize(("typed", "meant"), [("roce4O", "roce40"), ("tcp-10", "tcp10"), ("IB-EDR", "ib-edr")])
def test_unknown_fabric_suggests_the_nearest(typed, meant):
    with pytest.raises(ConfigError, match=rf"did you mean .*{meant}"):
        load_fabric(typed)


def test_unknown_fabric_far_from_all_lists_them():
    with pytest.raises(ConfigError, match=r"known: .*tcp10"):
        load_fabric("zzzz")


def test_a_copy_in_a_run_directory_is_the_same(tmp_path):
    copy = tmp_path / "fabric.yml"
    copy.write_text(fabric_text("roce40"))
    assert load_fabric(str(copy)) == load_fabric("roce40")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("mtu: 9000", "mtu: nine thousand", 7, "mtu: input should be a valid integer"),
        ("mtu: 9000", "mtv: 9000", 7, "mtv: unknown key; did you mean mtu"),
        ("line_rate_gbps: 40", "line_rate_gbps: -40", 6, "line_rate_gbps"),
        ("transport: roce", "transport: tcp", 1, "needs_rdma must be false"),
        ("mtu: 9000", "mtu: 600", 1, "floor at 36 Gbit/s, above the ceiling of"),
        ("  fraction: 0.90\n  source: Mellanox", "  fraction: 0.99\n  source: Mellanox", 1, "above the ceiling"),
        ("mtu: 9000", "mtu: 9000\nmtu: 1500", 8, "duplicate key: mtu"),
        ("mtu: 9000", "mtu: [9000", 8, "not valid YAML"),
        ("  source: ours, after", "  sauce: ours, after", 14, "sauce: unknown key"),
    ],
)
def test_a_malformed_profile_names_file_and_line(tmp_path, old, new, line, words):
    path = tmp_path / "mine.yml"
    text = fabric_text("roce40")
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=words) as caught:
        load_fabric(str(path))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:")
    assert int(message.removeprefix(f"{path}:").split(":")[0]) == line, message


def test_hypervisors_belong_to_profiles_of_virtual_machines():
    assert load_fabric("vmxnet3-10").hypervisors == ("vmware",)
    assert not load_fabric("tcp10").hypervisors
    assert isinstance(load_fabric("tcp10"), Fabric)
