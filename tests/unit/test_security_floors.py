"""Security floors: a component below its floor fails, what is not known never passes, old floors say so."""

from __future__ import annotations

import datetime

import pytest

from tests.support.site import (
    CRITERIA,
    GPU,
    NIC,
    PLAN,
    REAL,
    REAL_FACTS,
    addressed,
    criterion,
    healthy,
    judged,
    plan_of,
    provenance,
    results_of,
    run_info,
    with_facts,
)
from validation.judging.run_data import RunData
from validation.model.node_facts import NodeFacts
from validation.rules.fabric import load_fabric
from validation.rules.floors import Component, Floor, numbers
from validation.verdict.judge import judge

FLOORS = next(c.bound.floors for c in CRITERIA if c.id == "pf.secver")
#: A server with GPUs whose every component has its floor.
GOOD = {
    **REAL_FACTS,
    "gpu_count": 1,
    "gpu_model": "NVIDIA H200",
    "pci": [NIC, GPU],
    "driver": "libnvidia-compute-580 580.173.02-1ubuntu1",
    "cuda": "cuda-toolkit-13-1 13.1.1-1",
    "container_toolkit": "nvidia-container-toolkit 1.19.1-1",
    "dcgm": "datacenter-gpu-manager-4-core 1:4.6.0-1",
}


def of_gpu1(started="2026-11-21T10:00:00Z", topology=REAL, **facts):
    """gpu1's judgement and the criterion's verdict."""
    plan = plan_of(topology)

    def change(m):
        if m.id != "facts.gpu1":
            return None
        return healthy(m, facts={**GOOD, **facts}).model_copy(
            update={"provenance": provenance(m.nodes, started=started)}
        )

    verdict = judged(change, topology, plan, facts=REAL_FACTS)
    found = criterion(verdict, "pf.secver")
    return next(j for j in found.judgements if j.subject == "gpu1"), found


def test_a_stack_at_its_floors_passes():
    judgement, found = of_gpu1()
    assert (judgement.verdict, found.verdict) == ("pass", "pass"), judgement.reason
    assert "CUDA toolkit cuda-toolkit-13-1 13.1.1-1 has 13.1" in judgement.reason
    parts = {p.key: (p.declared, p.found, p.equal) for p in judgement.compared}
    assert parts["driver"] == ("580.159.03", GOOD["driver"], True)
    assert parts["docker"] == ("29.7.0", "29.9.0", True)
    assert parts["runc"] == ("1.4.3", "1.4.3", True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"driver": "libnvidia-compute-580 580.126.20-1ubuntu1"},
            "580.126.20-1ubuntu1 is below 580.159.03 (NVIDIA 5821, 2026-05-19)",
        ),
        ({"driver": "nvidia-driver-cuda 3:580.159.02-1.el9"}, "is below 580.159.03"),
        ({"driver": "libcuda1 550.163.01-2"}, "its line gets no fixes"),
        ({"driver_loaded": "580.126.20"}, "NVIDIA driver 580.126.20 is below"),  # updated, and not started anew
        ({"driver": "", "driver_loaded": "580.126.20"}, "NVIDIA driver 580.126.20 is below"),
        ({"cuda": "cuda-toolkit-13-0 13.0.2-1"}, "cuda-toolkit-13-0 13.0.2-1 is below 13.1 (NVIDIA 5755"),
        ({"cuda": "cuda-toolkit-12-9 12.9.1-1"}, "is below 13.1"),
        ({"docker": "29.4.3", "docker_package": "docker-ce 5:29.4.3-1"}, "Docker Engine 29.4.3 is below 29.7.0"),
        ({"docker": "", "docker_package": "docker-ce 3:29.4.3-1.el9"}, "29.4.3-1.el9 is below 29.7.0"),  # it is stopped
        ({"container_toolkit": "nvidia-container-toolkit 1.19.0-1"}, "is below 1.19.1"),
        ({"dcgm": "datacenter-gpu-manager-4-core 1:4.5.2-1"}, "is below 4.5.3"),
        ({"runc": "1.3.5"}, "runc 1.3.5 is below 1.3.6"),
        ({"runc": "1.2.9"}, "its line gets no fixes"),
        ({"os": "ubuntu 24.04", "kernel": "6.8.0-136-generic"}, "6.8.0-136-generic is below 6.8.0-137 (USN-8630-1"),
    ],
)
def test_what_is_below_its_floor_fails_with_the_advisory(facts, words):
    judgement, found = of_gpu1(**facts)
    assert (judgement.verdict, judgement.reason_code, found.verdict) == ("fail", "below-floor", "fail")
    assert words in judgement.reason
    assert "has 4.5.3" not in judgement.reason, "what is good stands beside it, in the text"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"driver": ""}, "1 GPU is there, and the version of NVIDIA driver is unknown"),
        ({"driver": "libcuda1 610.43.02-1"}, "of a line after all that are known"),
        ({"driver": "libcuda1 unknown"}, "is no version that can be compared"),
        ({"runc": None}, "the facts say nothing of runc"),
        ({"runc": ""}, "the facts say nothing of runc"),
        ({"runc": "1.4.3-rc.1"}, "is no version that can be compared"),
        ({"docker": "29.7.0-rc.1"}, "is no version that can be compared"),
        (
            {"docker": "26.1.5+dfsg1", "docker_package": "docker.io 26.1.5+dfsg1-9"},
            "Docker Engine 26.1.5+dfsg1 is the distribution's",
        ),
        ({"docker_package": None}, "Docker Engine 29.9.0: the facts do not say whose package Docker is"),
        ({"docker_package": ""}, "the facts do not say whose package"),
        ({"docker": "27.5.1", "docker_package": "docker.io 27.5.1-0ubuntu3"}, "is the distribution's"),
    ],
)
def test_what_is_not_known_is_not_passed(facts, words):
    judgement, found = of_gpu1(**facts)
    assert (judgement.verdict, judgement.reason_code) == ("not-measured", "missing-metric"), judgement.reason
    assert found.verdict == "not-measured"
    assert words in judgement.reason


def test_below_its_floor_fails_whatever_else_is_not_known():
    judgement, _ = of_gpu1(runc=None, cuda="cuda-toolkit-13-0 13.0.2-1")
    assert judgement.verdict == "fail"


@pytest.mark.parametrize(
    "facts",
    [
        {"os": "ubuntu 24.04", "kernel": "6.8.0-137-generic"},
        {"os": "ubuntu 24.04", "kernel": "6.8.0-1060-gcp"},  # counted otherwise
        {"os": "ubuntu 22.04", "kernel": "6.8.0-90-generic"},
        {"docker": "", "docker_package": "", "runc": ""},
        {"cuda": "", "dcgm": ""},
        {"driver": "", "driver_loaded": "580.173.02"},  # of a container, of whose packages none has it
        {"driver_loaded": "580.173.02"},
    ],
)
def test_what_is_not_there_or_has_no_floor_is_left_out(facts):
    assert of_gpu1(**facts)[0].verdict == "pass"


def test_a_node_without_any_of_it_has_nothing_to_judge():
    none = dict.fromkeys(("driver", "cuda", "container_toolkit", "dcgm", "docker", "docker_package", "runc"), "")
    judgement, _ = of_gpu1(gpu_count=0, gpu_model="", **none)
    assert judgement.verdict == "not-applicable"


@pytest.mark.parametrize("facts", [{}, {"runc": "1.3.5"}, {"runc": None}], ids=["good", "below", "unknown"])
def test_floors_that_grow_old_are_a_note_and_change_no_word_of_a_judgement(facts):
    """The same run today, on the 61st day and in ten years: verdict, reasons, bounds and headline are the same."""
    plan = plan_of(REAL)
    results = results_of(plan, facts=GOOD)
    results = [with_facts(r, **facts) if r.measurement == "facts.gpu1" else r for r in results]
    said, notes = [], []
    for days in (0, 60, 61, 3650):
        day = (datetime.datetime.combine(FLOORS.as_of, datetime.time(10)) + datetime.timedelta(days=days)).isoformat()
        info = run_info(REAL, plan, created=f"{day}Z")
        told = [r.model_copy(update={"provenance": provenance(r.provenance.nodes, started=f"{day}Z")}) for r in results]
        verdict = judge(RunData(info, REAL, plan, load_fabric("tcp10"), CRITERIA, addressed(REAL, told)))
        old = [n for n in verdict.notes if n.startswith("pf.secver: the floors are of ")]
        said.append(verdict.model_copy(update={"notes": tuple(n for n in verdict.notes if n not in old)}))
        notes.append(old)
    assert said[0] == said[1] == said[2] == said[3]
    assert notes[:2] == [[], []]
    assert f"{FLOORS.as_of}, 61 days before the run" in notes[2][0]
    assert "3650 days" in notes[3][0]


def test_virtual_nodes_are_told_and_not_judged():
    verdict = judged(None, plan=PLAN, facts={"docker": "29.4.3"})
    found = criterion(verdict, "pf.secver")
    mine = next(j for j in found.judgements if j.subject == "gpu1")
    assert (mine.verdict, mine.reason_code) == ("not-measured", "virtual")
    assert "Docker Engine 29.4.3 is below 29.7.0" in mine.reason
    assert verdict.outcome == "passed"


def test_facts_recorded_before_these_were_asked_are_read():
    facts = NodeFacts.model_validate(
        {k: v for k, v in with_facts(healthy(PLAN.measurement("facts.gpu1"))).facts.model_dump().items()
         if k not in ("docker_package", "runc")}
    )  # fmt: skip
    assert (facts.docker_package, facts.runc) == (None, None)


def test_every_floor_names_its_advisory_and_is_no_later_than_the_data():
    for component in FLOORS.components.values():
        for floor in (component.all, *component.lines.values()):
            assert floor is None or (floor.advisory and floor.date <= FLOORS.as_of)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5:29.9.0-1~debian.12~bookworm", (29, 9, 0, 1)),
        ("580.159.03-1ubuntu1", (580, 159, 3, 1)),
        ("1:4.6.0-1", (4, 6, 0, 1)),
        ("v1.19.1", (1, 19, 1)),
        ("13.1", (13, 1)),
        ("1.4.0-rc.2", None),
        ("", None),
        ("none", None),
    ],
)
def test_versions_are_compared_by_number(text, version):
    assert numbers(text) == version


def test_a_line_has_floors_of_its_own_only():
    floor = Floor(floor="29.10.0", advisory="x", date=datetime.date(2026, 1, 1), url="https://x")
    assert floor.reached((29, 10))
    assert not floor.reached((29, 9, 9))
    with pytest.raises(ValueError, match="no release of line 28"):
        Component(title="x", lines={"28": floor})
    with pytest.raises(ValueError, match="either all"):
        Component(title="x", all=floor, lines={"29": floor})
