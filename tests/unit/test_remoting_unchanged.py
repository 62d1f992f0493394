"""A program natively, remotely and on a part, and its client: what is refused, and what it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_unchanged_documents import UNCHANGED, state, unchanged_document, unchanged_result
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import remoting_unchanged_probe
from validation.measures.remoting.unchanged import UnchangedFacts
from validation.model import Judgement, Result, Sample, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))
Changed = Callable[[dict[str, Any]], object]


def run(way: int, /, **changes: Any) -> Changed:
    """One way's run."""
    return lambda said: said["runs"][way].update(changes)


def after(*packages: str, **changes: Any) -> Changed:
    """The client afterwards."""
    return lambda said: said.update(after=state(**changes), packages=list(packages))


def judged(topology: Topology, change: Changed | None = None) -> list[Judgement]:
    plan = plan_of(topology, ("preflight", "remoting"), "tcp10")
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found: list[Result] = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    mine = [m for m in plan.measurements if m.kind == "remoting-unchanged"]
    found += [unchanged_result(m, emulated=topology is LAB, change=change) for m in mine]
    return list(criterion(verdict_of(topology, plan, found, fabric="tcp10"), "rm.unchanged").judgements)


def test_every_server_is_tried() -> None:
    mine = [m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-unchanged"]
    assert [(m.nodes, m.params["server"], m.params["part"]) for m in mine] == [
        (("client1", "gpu1"), "gpu1", "1/2"),
        (("client1", "gpu2"), "gpu2", "1/2"),
    ]


def test_nothing_changed() -> None:
    samples, facts = parse("remoting-unchanged", unchanged_document(), UNCHANGED)
    assert isinstance(facts, UnchangedFacts)
    assert [(s.metric, s.value, s.unit) for s in samples] == [("changes", 0, "count")]


OTHER = "e" * 64
CHANGES = [
    (run(1, program_sha256=OTHER, command_sha256=OTHER), "remote: another program than native"),
    (run(2, command_sha256=OTHER), "part: another command than native"),
    (run(2, words=5), "part: another command than native"),
    (
        after("- bash 5.2", "+ bash 5.3", packages={"count": 412, "sha256": OTHER}),
        "the client's packages changed: - bash 5.2, + bash 5.3",
    ),
    (after(kernel="6.1.0-42-amd64"), "the client's kernel changed from 6.1.0-41-amd64 to 6.1.0-42-amd64"),
    (after(modules=["ext4", "nf_tables", "nvidia"]), "the client's kernel modules changed: nvidia"),
    (after(driver="575.57.08"), "the client's driver changed from '' to '575.57.08'"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_each_change_is_counted_and_named(change: Changed, words: str) -> None:
    samples, facts = parse("remoting-unchanged", unchanged_document(change=change), UNCHANGED)
    assert isinstance(facts, UnchangedFacts)
    assert (samples[0].value, facts.changes()) == (1, [words])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (run(0, back_sha256=OTHER), "native: other data came back"),
        (run(0, back_sha256=None, sent_sha256=None), "native: other data came back"),
        (run(1, back_sha256=OTHER, sent_sha256=OTHER), "did not copy the same data each time"),
        (run(0, library="/opt/elastic-ai/engine/lib/libcuda.so.1"), "found the same library"),
        (run(2, library="/usr/lib/libcuda.so.1"), "found the same library"),
        (run(2, told_bytes=128 << 20), "the part has no less memory"),
        (run(1, way="native"), "duplicate native"),
        (lambda said: said["runs"].reverse(), "part, remote, native ran"),
        (lambda said: said["runs"].pop(), "native, remote ran"),
        (after("- bash 5.2"), "contradict each other"),
        (after(packages={"count": 411, "sha256": OTHER}), "contradict each other"),
        (after(modules="ext4"), "modules"),
    ],
)
def test_what_does_not_show_three_ways_is_refused(change: Changed, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-unchanged", unchanged_document(change=change), UNCHANGED)


def test_another_server_or_part_than_planned_is_refused() -> None:
    for params in ({**UNCHANGED, "server": "gpu2"}, {**UNCHANGED, "part": "1/4"}):
        with pytest.raises(ParseError, match="unchanged: "):
            parse("remoting-unchanged", unchanged_document(), params)


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
def test_a_change_fails_wherever_it_is(topology: Topology) -> None:
    assert [(j.about.ends[0].node, j.verdict) for j in judged(topology)] == [("gpu1", "pass"), ("gpu2", "pass")]
    for change, words in CHANGES:
        found = judged(topology, change)
        assert {j.verdict for j in found} == {"fail"}
        assert words in found[0].reason


def test_a_count_that_its_runs_do_not_bear_out_is_no_pass() -> None:
    plan = plan_of(LAB, ("remoting",), "tcp10")
    mine = [m for m in plan.measurements if m.kind == "remoting-unchanged"]
    found = [unchanged_result(m, change=CHANGES[0][0]) for m in mine]
    none = [r.model_copy(update={"samples": (Sample(metric="changes", value=0, unit="count"),)}) for r in found]
    judgements = criterion(verdict_of(LAB, plan, none, fabric="tcp10"), "rm.unchanged").judgements
    assert [(j.verdict, j.reason_code) for j in judgements] == [("not-measured", "missing-metric")] * 2
    assert "contradict each other" in judgements[0].reason


def test_packages_that_changed_are_named_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = remoting_unchanged_probe.differences(["a 1", "b 1"], ["a 2", "b 1", "c 1"])
    assert found == ["- a 1", "+ a 2", "+ c 1"]
    assert len(remoting_unchanged_probe.differences([], [f"p{n} 1" for n in range(100)])) == 20
    monkeypatch.setattr(remoting_unchanged_probe, "_LISTINGS", (("false",), ("true",)))
    with pytest.raises(remoting_unchanged_probe.remoting.Unmet, match="no package manager"):
        remoting_unchanged_probe.listing()
