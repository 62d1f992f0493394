"""Fabric profiles: all there, every figure with a source, bounds that follow from them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.model import LabLink
from validation.model.load import ConfigError, Source
from validation.rules.bounds import bounds_of
from validation.rules.fabric import FIGURES, Fabric, fabric_names, load_fabric, read_fabric
from validation.rules.wire import tcp_payload_share

NAMES = {
    "tcp10", "roce10", "roce40", "roce100", "ib-fdr", "ib-edr", "vmxnet3-10", "pvrdma100",
    "tcp25", "tcp100", "roce25", "roce200", "roce400", "roce800", "ib-hdr", "ib-ndr", "ib-xdr",
}  # fmt: skip
LINK = LabLink(rate_gbps=1.0, rtt_max_us=800)
TCP100 = load_fabric("tcp100")


def test_all_profiles_of_the_design_exist():
    assert set(fabric_names()) == NAMES
    assert len(fabric_names()) == len(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_profile(name):
    fabric = load_fabric(name)
    assert fabric.name == name
    assert fabric.needs_rdma == (fabric.transport != "tcp")
    assert all(v for v in fabric.sources.model_dump(exclude={"rdma_mtu"}).values())
    bounds = bounds_of(fabric)
    assert set(fabric.figures()) == set(bounds) & {*FIGURES, "mtu"}
    assert all(bound.source and bound.derivation for bound in bounds.values())
    assert ("tcp_bandwidth" in bounds) == (fabric.link_layer == "Ethernet")
    if "tcp_bandwidth" in bounds:
        bound = bounds["tcp_bandwidth"]
        assert bound.floor == pytest.approx(fabric.tcp_bandwidth.fraction * fabric.line_rate_gbps)
        assert bound.floor < bound.ceiling < fabric.line_rate_gbps


@pytest.mark.parametrize(
    ("mtu", "rate", "payload"), [(1500, 40, 37.7), (9000, 40, 39.6), (1500, 25, 23.5), (9000, 400, 396.0)]
)
def test_tcp_ceiling(mtu, rate, payload):
    assert rate * tcp_payload_share(mtu) == pytest.approx(payload, rel=0.003)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("roce25", 24.51),
        ("roce40", 39.2),
        ("roce100", 98.0),
        ("roce400", 392.2),
        ("roce800", 784.4),
        ("ib-edr", 99.4),
        ("ib-xdr", 795.0),
    ],
)
def test_rdma_ceiling(name, payload):
    assert load_fabric(name).rdma_ceiling_gbps == pytest.approx(payload, rel=0.001)
    assert load_fabric("tcp10").rdma_ceiling_gbps is None


def test_the_bound_is_derived_step_by_step():
    fabric = load_fabric("tcp10")
    bound, share = bounds_of(fabric)["tcp_bandwidth"], fabric.tcp_bandwidth.fraction
    words = "\n".join(bound.derivation)
    for step in (
        "line rate of tcp10: 10 Gbit/s",
        "(9000-52)/(9000+38) = 9.9 ",
        f"{share:g} of the line rate",
        f"= {10 * share:g} Gbit/s",
    ):
        assert step in words
    assert bound.nominal is None


def test_a_rehearsal_takes_the_labs_rate_and_says_both():
    fabric = load_fabric("tcp10")
    bound = bounds_of(fabric, LINK)["tcp_bandwidth"]
    assert bound.ceiling == pytest.approx(0.9900, abs=1e-4)
    assert bound.floor == pytest.approx(0.95 * bound.ceiling)
    assert "1 Gbit/s" in bound.derivation[0]
    assert f"tcp10 on hardware: floor {bounds_of(fabric)['tcp_bandwidth'].floor:g} Gbit/s" in bound.nominal


@given(rate=st.floats(0.01, 100), error=st.floats(-0.03, 0.005))
def test_within_3_percent_of_truth_passes_and_a_tenth_fails(rate, error):
    bound = bounds_of(TCP100, LabLink(rate_gbps=rate, rtt_max_us=1))["tcp_bandwidth"]
    truth = bound.ceiling
    assert bound.floor <= truth * (1 + error) <= truth * 1.005 * (1 + 1e-9)
    assert truth / 10 < bound.floor


def test_latency_bound():
    fabric = load_fabric("roce40")
    assert bounds_of(fabric)["tcp_rtt"].maximum == 50
    rehearsal = bounds_of(fabric, LINK)["tcp_rtt"]
    assert rehearsal.maximum == 800
    assert "at most 50 us" in rehearsal.nominal
    assert "tcp_rtt" not in bounds_of(fabric.model_copy(update={"tcp_rtt": None}))


@pytest.mark.parametrize(("typed", "meant"), [("roce4O", "roce40"), ("tcp-10", "tcp10"), ("IB-EDR", "ib-edr")])
def test_unknown_fabric_suggests_the_nearest(typed, meant):
    with pytest.raises(ConfigError, match=rf"did you mean .*{meant}"):
        load_fabric(typed)


def test_unknown_fabric_far_from_all_lists_them():
    with pytest.raises(ConfigError, match=r"known: .*tcp10"):
        load_fabric("zzzz")


def test_a_copy_in_a_run_directory_is_the_same(tmp_path):
    copy = tmp_path / "fabric.yml"
    loaded = read_fabric("roce40")
    copy.write_text(loaded.text)
    assert load_fabric(Source(copy, copy.read_text())) == loaded.fabric
    assert read_fabric(str(copy)).text == loaded.text  # nothing is added to what is complete


def test_a_profile_has_the_figures_of_its_transport_unless_it_states_them(tmp_path):
    text = (Path(str(resources.files("validation.rules"))) / "fabrics" / "roce100.yml").read_text()
    path = tmp_path / "mine.yml"
    path.write_text(f"{text}tcp_rtt: {{maximum_us: 20, source: ours}}\nrdma_bandwidth: null\n")
    loaded = read_fabric(str(path))
    ours = load_fabric("roce100")
    assert loaded.origin == "site"
    assert read_fabric("roce100").origin == "packaged"
    assert loaded.text.startswith(path.read_text())
    assert loaded.fabric.tcp_rtt.maximum_us == 20
    assert loaded.fabric.rdma_bandwidth is None
    assert loaded.fabric.rdma_read_latency == ours.rdma_read_latency is not None
    path.write_text(text.replace("line_rate_gbps: 100", "line_rate_gbps: 56"))
    slower = load_fabric(str(path)).rdma_read_latency  # published from 100 Gbit/s on
    assert (slower.maximum_us, slower.of_tcp_rtt, slower.provisional) == (None, 1, True)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("mtu: 9000", "mtu: nine thousand", 7, "mtu: input should be a valid integer"),
        ("mtu: 9000", "mtv: 9000", 7, "mtv: unknown key; did you mean mtu"),
        ("line_rate_gbps: 40", "line_rate_gbps: -40", 6, "line_rate_gbps"),
        ("transport: roce", "transport: tcp", 1, "needs_rdma must be false"),
        ("mtu: 9000", "mtu: 600", 1, "floor at .* above the ceiling of"),
        ("notes:", "rdma_bandwidth: {fraction: 0.99, source: ours}\nnotes:", 1, "above the ceiling"),
        ("notes:", "tcp_rtt: null\nnotes:", 1, "rdma_write_latency: of_tcp_rtt is a share of tcp_rtt, which has no"),
        ("notes:", "rdma_read_latency: {source: ours}\nnotes:", 18, "either maximum_us .* or of_tcp_rtt"),
        ("mtu: 9000", "mtu: 9000\nmtu: 1500", 8, "duplicate key: mtu"),
        ("mtu: 9000", "mtu: [9000", 8, "not valid YAML"),
        ("  transport: Dell", "  transprt: Dell", 15, "transprt: unknown key; did you mean transport"),
    ],
)
def test_a_malformed_profile_names_file_and_line(tmp_path, old, new, line, words):
    path = tmp_path / "mine.yml"
    text = (Path(str(resources.files("validation.rules"))) / "fabrics" / "roce40.yml").read_text()
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
