"""Suite training on provisioned nodes: one command, and every table and chart of training in the report is filled.

With the image that the role builds, and with one as a vendor delivers it, which has neither Horovod nor Open MPI.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab, Provisioned, Run, validation_of

from validation.kinds.trained import NO_MPIRUN
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.training.decoder import DecoderFacts
from validation.measures.training.facts import TrainingFacts, TurnsFacts
from validation.measures.training.long import LongTrainingFacts
from validation.report.documents import RunDocuments, read_run
from validation.report.figures import figures_context
from validation.report.summary import verdict_of

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.rest]
MEASURED = {"tn.short", "tn.intra", "tn.inter", "tn.rate", "tn.comm", "tn.cpu", "tn.cores", "tn.turns", "tn.outup"}
MEASURED |= {"tn.long", "tn.losses"}
DECODERS = ("--decoders", "tiny")
RDMA = {"tn.path", "tn.rdma", "tn.gdr"}

VENDORS = r"""
set -eu
ours=$(sed -n 's/.*"reference": *"\([^"]*\)".*/\1/p' /etc/elastic-ai/training/image.json)
vendors="${ours%%/*}/vendor/torch:1"
mkdir -p /root/vendor
cat > /root/vendor/Dockerfile <<END
FROM $ours
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip uninstall -q -y horovod && dpkg --purge --force-depends openmpi-bin \
 && ! command -v mpirun && ! python3 -c 'import horovod' && python3 -c 'import torch'
END
docker build --network host --quiet --tag "$vendors" /root/vendor >&2
docker push --quiet "$vendors" >&2
echo "$vendors"
"""
"""An image with torch alone, in the head's registry, which stands in for the vendor's."""


def filled(lab: Lab, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Criteria of training by id, and the section's figures, of a run that measured all that a lab can."""
    assert run.exit_code == 0, run.stderr[-3000:]
    said = {c["id"]: c for c in run.verdict["criteria"] if c["id"].startswith("tn.")}
    assert len(said) > 15
    assert not [id_ for id_, c in said.items() if c["reason_code"] == "no-probe"]
    left = {id_: c["reason"] for id_, c in said.items() if c["reason_code"] == "not-selected"}
    assert all(f"({id_})" in why for id_, why in left.items()), left
    assert set(left) >= RDMA, "the containers' ports carry TCP alone"
    assert {id_ for id_, c in said.items() if any(j["value"] is not None for j in c["judgements"])} >= MEASURED
    across = next(c for c in run.verdict["criteria"] if c["id"] == "tr.collect")
    assert any(j["value"] is not None for j in across["judgements"]), across["reason"]
    documents = read_run(run.folder)
    context = figures_context(documents, verdict_of(documents))
    assert all(row.problem is None for row in context["training"].rows)
    assert [figure.id for figure in context["training_figures"] if figure.empty] == []
    learned(lab, documents)
    assert said["tn.losses"]["verdict"] == "pass", said["tn.losses"]["reason"]
    assert (said["tn.tflops"]["verdict"], said["tn.tflops"]["reason_code"]) == ("not-measured", "virtual")
    decoders = [r.facts for r in documents.results if isinstance(r.facts, DecoderFacts)]
    assert {(one.world_size, one.sharding) for one in decoders} >= {(2, "ddp"), (2, "fsdp"), (4, "ddp"), (4, "fsdp")}
    # Debian's torch is 1.13, in which FSDP is another one: the job says this, and is no loss of the run
    assert all("has no fully_shard" in one.cannot for one in decoders if one.sharding == "fsdp")
    assert all(one.losses for one in decoders if one.sharding == "ddp")
    page = context["scale_out"]
    assert not page.figure.empty
    assert [cell.rate is not None for cell in page.rows[0].cells] == [True, True]
    return said, context


def learned(lab: Lab, documents: RunDocuments) -> None:
    """The rehearsal of the long test: a small network learns, and nothing of it stays on a node."""
    (facts,) = (r.facts for r in documents.results if isinstance(r.facts, LongTrainingFacts))
    assert (facts.world_size, len(set(facts.hosts)), facts.resumed) == (4, 2, ())
    assert facts.curve[-1].val_top1 > 0.4, "ten classes, one in ten by chance"
    assert {node: lab.ssh(node, "ls -A /dev/shm | grep elastic-ai-train || true") for node in ("gpu1", "gpu2")} == {
        "gpu1": "",
        "gpu2": "",
    }


def test_every_table_and_chart_of_training_is_filled(provisioned: Provisioned, tmp_path: Path) -> None:
    inventory = provisioned.lab.inventory
    training = ("--fabric", "ib-edr", "--suite", "training", *DECODERS)
    run = validation_of(inventory, tmp_path / "runs", *training, "--format", "html")
    said, context = filled(provisioned.lab, run)
    assert any(j["value"] is not None for j in said["tn.twin"]["judgements"])
    assert {row.launched for row in context["training"].rows} == {""}


@pytest.fixture
def vendors(provisioned: Provisioned) -> Iterator[Lab]:
    """The lab with a vendor's image, named in its inventory; afterwards it has its own again."""
    lab = provisioned.lab
    image = lab.ssh("head", VENDORS).strip()
    named = lab.inventory / "group_vars" / "all" / "vendor.yml"
    named.parent.mkdir(parents=True, exist_ok=True)
    try:
        named.write_text(f"horovod_image: {image}\n")
        done = lab.playbook(name="playbooks/training.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        yield lab
    finally:
        named.unlink(missing_ok=True)
        done = lab.playbook(name="playbooks/training.yml")
    assert done.returncode == 0, done.stdout[-6000:]


def test_an_image_of_a_vendor_is_validated_whole_by_torchrun(vendors: Lab, tmp_path: Path) -> None:
    again = vendors.playbook(name="playbooks/training.yml")
    assert again.returncode == 0, again.stdout[-6000:]
    assert again.stdout.count("changed=0") == 3, again.stdout[-2000:]
    training = ("--fabric", "ib-edr", "--suite", "training", *DECODERS)
    run = validation_of(vendors.inventory, tmp_path / "runs", *training, "--format", "html")
    said, context = filled(vendors, run)
    twin = said["tn.twin"]
    assert (twin["verdict"], twin["reason_code"]) == ("not-applicable", "not-applicable")
    assert NO_MPIRUN in twin["reason"]
    assert {row.launched for row in context["training"].rows} == {f"launched by torchrun: {NO_MPIRUN}"}
    results = read_run(run.folder).results
    jobs = [r.facts for r in results if isinstance(r.facts, TrainingFacts)]
    turns = [r.facts for r in results if isinstance(r.facts, TurnsFacts)]
    assert {(job.framework, job.horovod) for job in (*jobs, *turns)} == {("ddp", "")}
    launchers = [job.launcher for job in jobs] + [turn.launcher for one in turns for turn in one.turns]
    launchers += [r.facts.launcher for r in results if isinstance(r.facts, CollectivesFacts)]
    assert set(launchers) == {"torchrun"}
