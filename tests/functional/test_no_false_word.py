"""Whom a verdict and its report accuse, on sites of which it is known what is wrong: nobody else, and nobody at all.

Fabrics by shape, profile and fault (tests/support/truth.py), each fault of the drill as a real machine would read it
(tests/support/planted.py), the machines of the founding documents and the recorded run, through judge and report.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support import planted
from tests.support.counted import disagreements
from tests.support.told import contradicted
from tests.support.truth import SHAPES, Walked, accused, faults, judged, site
from tests.support.warm import COMMAND_PATH, REPO, command
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.faults import FAULTS
from toolkit.lab.gpufaults import GPU_FAULTS
from toolkit.lab.leaf.leaf import CROSSED
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.storagefaults import STORAGE_FAULTS
from validation.measures.fabric.pairs_figures import suspects
from validation.model import Subject, Topology, VerdictDoc
from validation.model.load import load_json
from validation.report.agreement import contradictions
from validation.report.documents import read_run
from validation.report.front_lines import worst_link
from validation.rules.fabric import fabric_names, load_fabric

pytestmark = pytest.mark.computes

WALK = REPO / "tests/data/walk"
SITES = ("c4130-fdr", "c4140-roce40", "c4140-2018", "vmware-vmxnet3-10", "vmware-roce100", "vmware-pvrdma100")
ACCUSES = re.compile(
    r"\b(slow(?:er|est)?|suspects?|at fault|faulty|sick|worse|unlike|odd one|differs?|apart from|longer) ?\b",
    re.IGNORECASE,
)
"""Words by which a report's sentence may hold something against a part that it names; typed parts are asked as such."""
ELSEWHERE = {"library-empty", CROSSED, *BMC_FAULTS, *LEAF_FAULTS, *STORAGE_FAULTS}
"""Faults of the drill that another test holds against who is blamed, by what the probes really read:
test_gpu_faults_found.py has those of GPUs, test_lab_bmc.py those of BMCs, test_lab_leaf.py those of a
switch and, with test_parts_lab.py, crossed cables, test_lab_storage.py those of a storage,
test_server_faults_found.py and test_gpulibs.py the others."""


def fitting(shape: str, fabric: str):
    return [f for f in faults(shape) if load_fabric(fabric).needs_rdma or not f.rdma]


def settled(walked: Walked) -> None:
    assert not walked.wrong, "\n".join(walked.wrong[:10])
    assert not walked.unseen, "\n".join(walked.unseen[:10])


@pytest.mark.parametrize("shape", SHAPES)
def test_on_every_fabric_a_healthy_site_accuses_nobody_and_a_sick_one_the_culprit(shape: str) -> None:
    """Of the faults every fabric takes its share in turn; all of them: the test below."""
    walked = Walked()
    for turn, fabric in enumerate(fabric_names()):
        healthy, *sick = fitting(shape, fabric)
        for fault in (healthy, *sick[turn % 5 :: 5]):
            walked.walk(shape, fabric, fault)
    print(f"{walked.runs} runs, {walked.accusations} accusations, {len(walked.wrong)} false")
    settled(walked)


@pytest.mark.rest
@pytest.mark.parametrize("shape", SHAPES)
def test_every_fault_on_every_fabric_accuses_the_culprit_alone(shape: str) -> None:
    walked = Walked()
    for fabric in fabric_names():
        for fault in fitting(shape, fabric):
            walked.walk(shape, fabric, fault)
    print(f"{walked.runs} runs, {walked.accusations} accusations, {len(walked.wrong)} false")
    settled(walked)


@pytest.mark.parametrize("lost", ["both_ways", "op"])
def test_a_key_that_is_shared_shows(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Where one way and both ways at once, or operations, were held against each other, the walk finds false words."""
    whole = Subject.sort.fget
    assert whole is not None
    other = {"both_ways": False} if lost == "both_ways" else {"op": ""}
    monkeypatch.setattr(Subject, "sort", property(lambda self: whole(self)._replace(**other)))
    monkeypatch.setattr(Subject, "flows", property(lambda self: (self.ends,) if len(self.ends) == 2 else ()))
    walked = Walked()
    for fault in faults("six"):
        walked.walk("six", "roce40", fault)
    assert walked.wrong


@pytest.mark.parametrize("kind", ["", *planted.KINDS])
def test_a_fault_of_the_drill_accuses_its_own_node_and_no_other(kind: str) -> None:
    verdict = planted.judged(kind)
    found = list(accused(verdict, planted.TOPOLOGY))
    others = [one for one in found if not any(name.startswith(planted.SICK) for name in one.names)]
    assert not others, others[:5]
    assert bool(verdict.findings) == bool(kind), verdict.headline
    for finding in verdict.findings:
        assert {end.node for end in finding.about.ends} == {planted.SICK}


def test_every_fault_of_the_drill_is_held_against_who_is_blamed() -> None:
    assert set(FAULTS) == {*planted.KINDS, *GPU_FAULTS, *ELSEWHERE}


# --- through the command line, to the report -------------------------------------------------------------------------


def sentences(page: str) -> list[str]:
    """What a report says, sentence by sentence and cell by cell."""
    page = re.sub(r"(?s)<(style|script|head)\b.*?</\1>", " ", page)
    page = re.sub(
        r"</?(td|th|p|li|text|title|desc|tr|h\d|div|dd|dt|caption|figcaption|summary|option)\b[^>]*>", "\n", page
    )
    text = html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\xa0", " ")
    return [s.strip() for line in text.splitlines() for s in re.split(r"(?<=[.;]) ", line) if s.strip()]


def parts(topology: Topology) -> re.Pattern[str]:
    names = [n.name for n in topology.nodes]
    return re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?:/\w+)?(?![\w-])|\bGPU \d+\b")


def run_of(tmp_path: Path, program: str, *arguments: str) -> Path:
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": COMMAND_PATH, "COLUMNS": "200"}
    done = command(tmp_path, ("validate", *arguments, "--format", "html"), environment, WALK / program)
    assert done.returncode in (0, 1, 3), done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    return run


def accusing(run: Path) -> list[str]:
    """Sentences of the report that name a part and hold something against it, but for what to do about a failure."""
    documents = read_run(run)
    named = parts(documents.topology)
    general = {s for c in documents.catalogue.values() for s in sentences(f"{c.remedy}. {c.statement}. {c.source}")}
    worst = worst_link(documents)  # which pair has the least is a figure of the drawing, and accuses nobody
    if worst is not None:
        general.update(
            sentences(f"Slowest measured link: {worst.source} to {worst.destination}, {worst.value}, {worst.share}.")
        )
        general.update(sentences(f"slowest measured link: {worst.source} to {worst.destination}"))
    said = [s for s in sentences((run / "report.html").read_text()) if named.search(s) and ACCUSES.search(s)]
    return [s for s in dict.fromkeys(said) if s not in general]


@pytest.mark.parametrize("name", SITES)
def test_a_constructed_site_of_the_documents_is_accused_of_nothing(tmp_path: Path, name: str) -> None:
    shutil.copytree(REPO / "inventories" / name, tmp_path / name)
    run = run_of(tmp_path, "machines.py", "-i", name)
    verdict = load_json(run / "verdict.json", VerdictDoc)
    documents = read_run(run)
    assert verdict.findings == ()
    assert list(accused(verdict, documents.topology)) == []
    assert [suspects(documents, c.id) for c in verdict.criteria if any(suspects(documents, c.id))] == []
    assert accusing(run) == []
    assert disagreements(documents) == []
    assert contradictions(documents) == ()
    assert contradicted(documents) == []
    for one in verdict.criteria:  # or two of them would be held against each other by their names
        subjects = [j.subject for j in one.judgements]
        assert len(subjects) == len(set(subjects)), one.id


def test_the_recorded_run_accuses_the_node_whose_stack_is_another(tmp_path: Path) -> None:
    shutil.copytree(WALK / "three-nodes", tmp_path / "site")
    suites = ("--suite", "preflight", "--suite", "transport")
    run = run_of(tmp_path, "play.py", "--fabric", str(WALK / "tcp1.yml"), "-i", "site", *suites)
    verdict = load_json(run / "verdict.json", VerdictDoc)
    found = list(accused(verdict, read_run(run).topology))
    assert found
    assert all("client1" in one.names for one in found), found
    assert {f.subject for f in verdict.findings} == {"client1"}
    assert [s for s in accusing(run) if "client1" not in s] == []


def test_where_all_sessions_are_alike_none_is_the_slowest_and_no_port_has_the_least() -> None:
    verdict, _ = judged("six", "roce40", next(iter(faults("six"))))
    said = [j.reason for c in verdict.criteria if c.id in ("tr.incast", "tr.alltoall") for j in c.judgements]
    assert said
    assert not [why for why in said if re.search(r"\b(slowest|fastest|least)\b", why)]


def test_the_walk_covers_every_shape_and_fabric() -> None:
    """As many as the report of an acceptance may have: counted, so that a walk over nothing is no pass."""
    runs = sum(len(fitting(shape, fabric)) for shape in SHAPES for fabric in fabric_names())
    assert runs > 1000
    assert json.dumps(sorted(SHAPES)) == '["leaves", "rails", "six", "three", "two"]'
    verdict, found = judged("six", "roce40", next(iter(faults("six"))))
    assert not found
    assert len(site("six").nodes) == 6
    assert verdict.measured == verdict.planned > 400
