"""Criteria as data: complete, sourced, and refused with file and line where malformed."""

from __future__ import annotations

import pytest

from validation.kinds import KINDS
from validation.model.load import ConfigError
from validation.rules.fabric import Expectation, fabric_names, load_fabric
from validation.run.catalogue import load_criteria, read_criteria

IDS = [
    "pf.bom",
    "pf.stack",
    "pf.pcie",
    "pf.numa",
    "pf.mtu",
    "pf.lossless",
    "pf.rdmaport",
    "pf.memlock",
    "pf.ibfabric",
    "tr.h2d",
    "tr.p2p",
    "tr.local",
    "tr.p2plat",
    "tr.matrix",
    "tr.uniform",
    "tr.remotelat",
    "tr.rdmafn",
    "tr.rdmabw",
    "tr.rdmalat",
    "tr.tcpbw",
    "tr.netlat",
    "tr.nccl",
    "co.gemm",
    "co.conv",
    "co.rnn",
    "tn.short",
    "tn.intra",
    "tn.inter",
    "tn.path",
    "tn.rdma",
    "tn.long",
    "tn.comm",
    "tn.cpu",
    "rm.layout",
    "rm.ratio",
    "rm.batch",
    "rm.fraction",
    "rm.isolate",
    "rm.scale",
    "rm.same",
    "op.util",
]
#: Ours beside them.
IDS += ["rm.memory", "rm.matrix", "rm.copy", "rm.roundtrip", "op.leased"]
PROBED = {
    "pf.bom",
    "pf.stack",
    "pf.pcie",
    "pf.numa",
    "pf.mtu",
    "tr.tcpbw",
    "tr.netlat",
    "tn.short",
    "tn.intra",
    "tn.inter",
}
PROBED |= {"tr.rdmafn", "tr.rdmabw", "tr.rdmalat", "pf.lossless", "pf.rdmaport", "pf.memlock", "pf.ibfabric"}
PROBED |= {"rm.isolate", "rm.memory", "rm.matrix", "rm.copy", "rm.roundtrip", "op.util", "op.leased"}
PROBED |= {"rm.same", "rm.ratio", "rm.batch", "rm.fraction", "rm.scale", "rm.infer", "rm.model"}
PROBED |= {"rm.layout", "rm.noise", "rm.fault", "rm.noreboot", "rm.unchanged", "rm.move", "rm.pooled"}


def test_every_id_of_the_reference_architecture_is_there_once():
    ids = [c.id for c in load_criteria()]
    assert len(ids) == len(set(ids))
    assert set(IDS) <= set(ids), "more may be added, none of these may go"


def test_each_is_either_measured_or_says_why_not():
    assert {c.id for c in load_criteria() if c.kind in KINDS} >= PROBED
    for criterion in load_criteria():
        assert (criterion.kind in KINDS) != bool(criterion.no_probe), criterion.id
        assert criterion.source
        assert criterion.bound.words


def test_what_is_ours_is_marked_provisional():
    ours = {"tr.h2d", "tr.uniform", "tr.tcpbw", "co.gemm", "co.conv", "co.rnn", "tn.short", "tn.cpu", "rm.fraction"}
    ours |= {"rm.memory"}
    assert {c.id for c in load_criteria() if c.bound.provisional} >= ours


def test_what_is_merely_reported_is_optional():
    reported = {c.id for c in load_criteria() if c.direction == "report"}
    assert reported >= {"tr.remotelat", "tn.comm", "rm.scale", "rm.copy", "rm.roundtrip", "op.util", "op.leased"}
    assert not [c.id for c in load_criteria() if c.required and c.id in reported]


def test_copies_in_a_run_directory_are_the_same(tmp_path):
    for name, text in ((source.path.name, source.text) for source in read_criteria()):
        (tmp_path / name).write_text(text)
    assert load_criteria(tmp_path) == load_criteria()


def test_an_empty_folder_judges_nothing(tmp_path):
    with pytest.raises(ConfigError, match="no criteria files"):
        load_criteria(tmp_path)


def test_words_are_made_from_the_numbers():
    criteria = {c.id: c.bound for c in load_criteria()}
    fabric = load_fabric("roce100")
    lower = fabric.model_copy(update={"tcp_bandwidth": Expectation(fraction=0.8, source="ours")})
    assert criteria["tr.tcpbw"].said(fabric).startswith(f">= {fabric.tcp_bandwidth.fraction:g} x")
    assert criteria["tr.tcpbw"].said(lower).startswith(">= 0.8 x")
    assert criteria["tr.rdmalat"].said(fabric).startswith("<= 2.5 us")
    derived = "<= 25 us send and write, <= 50 us read, each at most 2 x the median of the fabric's pairs"
    assert criteria["tr.rdmalat"].said(load_fabric("roce40")) == derived
    none = load_fabric("roce40").model_copy(update={"rdma_write_latency": None})
    assert "roce40" in criteria["tr.rdmalat"].said(none)
    assert criteria["tn.short"].said(fabric).startswith("spread <= 3 %")
    for name in fabric_names():
        assert not [b for b in criteria.values() if "{" in b.said(load_fabric(name))]


GOOD = """criteria:
  - id: tr.tcpbw
    statement: TCP bandwidth
    suite: transport
    scope: pair
    metric: tcp_bandwidth_gbps
    unit: Gbit/s
    direction: higher
    kind: tcp-bandwidth
    bound: {kind: fabric, fabric_key: tcp_bandwidth, words: at least}
    source: ours
    required: true
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("scope: pair", "scope: pairs", 5, "scope"),
        ("required: true", "requierd: true", 12, "requierd|required"),
        ("source: ours", "source: ''", 11, "source"),
        ("fabric_key: tcp_bandwidth", "fabric_key: tcp_bandwith", 10, "no key of a fabric profile"),
        ("words: at least", "words: 'at least {tcp_bandwith}'", 10, "tcp_bandwith"),
        ("    kind: tcp-bandwidth\n", "", 2, "either kind"),
        ("    metric: tcp_bandwidth_gbps\n", "", 2, "metric and unit"),
        ("id: tr.tcpbw", "id: Bandwidth", 2, "id"),
        (GOOD[10:], "", 1, "criteria"),
        ("kind: tcp-bandwidth", "kind: tcp-bandwith", 9, "kind: there is no 'tcp-bandwith'"),
        ("    required: true", "    required: true\n    method: median", 13, "method: there is no 'median'"),
    ],
)
def test_a_malformed_file_names_file_and_line(tmp_path, old, new, line, words):
    path = tmp_path / "site.yml"
    path.write_text(GOOD)
    assert load_criteria(tmp_path)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        load_criteria(tmp_path)
    assert str(caught.value).startswith(f"{path}:{line}: "), str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_that_stands_twice(tmp_path):
    (tmp_path / "a.yml").write_text(GOOD)
    (tmp_path / "b.yml").write_text(GOOD)
    with pytest.raises(ConfigError, match=r"b\.yml:1: tr\.tcpbw is in a\.yml too"):
        load_criteria(tmp_path)


def test_every_criterion_says_what_to_do() -> None:
    assert [c.id for c in load_criteria() if not c.remedy] == []
