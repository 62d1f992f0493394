"""The remoting probes against real engine servers on loopback; tests/support/pool_stand_in.py gives out the leases."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import pool_stand_in
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import (
    remoting_copy_probe,
    remoting_fraction_probe,
    remoting_infer_probe,
    remoting_isolate_probe,
    remoting_layout_probe,
    remoting_neighbours_probe,
    remoting_noreboot_probe,
    remoting_scale_probe,
    remoting_shares_probe,
    remoting_train_probe,
    remoting_unchanged_probe,
)
from validation.measures.remoting.facts import ATTEMPTS, CopyFacts, FractionFacts, IsolationFacts, asked_attempts
from validation.measures.remoting.infer import InferFacts
from validation.measures.remoting.neighbours import NeighbourFacts, NoRebootFacts
from validation.measures.remoting.shares import SharesFacts
from validation.measures.remoting.train import RemoteTrainFacts
from validation.measures.remoting.unchanged import UnchangedFacts
from validation.measures.remoting.worlds import WorldsFacts
from validation.probes import remoting_program
from validation.probes.tool import Ran

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here, which builds the reference engine"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: an attempt is made as another user"),
    pytest.mark.engines,
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where every user may look, as on a server; pytest's own folders are closed."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-pool-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def pool(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    from tests.support import engine_run

    emulated = engine_run.describe(folder, context_bytes=500_000)
    devices = Path(emulated["ELASTIC_AI_EMULATED_STATE"])
    devices.touch()
    devices.chmod(0o660)  # as role remoting_server closes it
    environment = pool_stand_in.install(folder, engine_run.built())
    for name, value in {**emulated, **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pool_stand_in, "FOLDER", folder)
    yield folder
    with pool_stand_in.leases() as found:
        running = [number for number, lease in found.items() if lease["state"] == "running"]
    for number in running:
        pool_stand_in.release(number)
    assert not running, "leases that a probe left behind"


def isolate(**changes: Any) -> Any:
    return remoting_isolate_probe.probe(
        remoting_isolate_probe.Asked(**{"server": "gpu1", "elsewhere": "gpu2", **changes})
    )


def test_every_attempt_is_made_and_refused(pool: Path) -> None:
    doc = isolate()
    assert doc["error"] is None
    samples, facts = parse("remoting-isolate", doc, {"server": "gpu1", "elsewhere": "gpu2"})
    assert isinstance(facts, IsolationFacts)
    assert facts.breaches == [], facts.attempts
    assert [attempt.name for attempt in facts.attempts] == list(asked_attempts("gpu2"))
    assert {s.metric for s in samples} == {"breaches", "gone_s"}
    token = (pool / "lease-1/token").read_text().strip()
    assert token not in str(doc), "the token stays out of what is recorded"


def test_a_native_program_that_has_the_gpu_is_a_breach(pool: Path) -> None:
    """Who has a part, and a server whose device files are open to all."""
    Path(os.environ["ELASTIC_AI_EMULATED_STATE"]).chmod(0o666)
    _, facts = parse("remoting-isolate", isolate(elsewhere=""), {"server": "gpu1"})
    assert isinstance(facts, IsolationFacts)
    assert facts.breaches == ["the GPU by a step in the lease's job", "the GPU by a native job"]


def test_servers_without_a_limit_are_breached_and_it_is_told(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_UNLIMITED", "1")
    doc = remoting_fraction_probe.probe(remoting_fraction_probe.Asked(server="gpu1", parts=["1/2", "1/2"]))
    with pytest.raises(ParseError, match=r"1/2 has 128 MiB, .* and could take 25\d"):
        parse("remoting-fraction", doc, {})


def test_what_an_engine_does_not_promise_is_tried_and_told(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without tokens, whose limit is of each program: the first is possible, and no breach of a promise."""
    monkeypatch.setenv("STAND_IN_OPEN", "1")
    _, facts = parse("remoting-isolate", isolate(elsewhere=""), {"server": "gpu1"})
    assert isinstance(facts, IsolationFacts)
    assert (facts.breaches, facts.unpromised) == ([], ["no token", "a wrong token"])
    assert [a.name for a in facts.attempts if not a.promised] == [
        "memory beyond the part in two programs", "no token", "a wrong token",
    ]  # fmt: skip


def test_a_lease_that_outlives_its_end_is_a_breach(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_isolate_probe, "GONE_S", 1.0)
    monkeypatch.setattr(remoting_isolate_probe.remoting, "release", lambda lease: None)
    doc = isolate(elsewhere="")
    _, facts = parse("remoting-isolate", doc, {"server": "gpu1"})
    assert isinstance(facts, IsolationFacts)
    assert facts.breaches == list(ATTEMPTS)[-3:]
    pool_stand_in.release("1")


@pytest.mark.parametrize("parts", [("1/2", "1/2"), ("3/4", "5/20"), ("1/7",) * 7], ids="+".join)
def test_parts_of_a_gpu_are_filled_at_the_same_time(pool: Path, parts: tuple[str, ...]) -> None:
    doc = remoting_fraction_probe.probe(remoting_fraction_probe.Asked(server="gpu1", parts=list(parts)))
    samples, facts = parse("remoting-fraction", doc, {"parts": parts})
    assert samples[0].value < 1
    assert isinstance(facts, FractionFacts)
    assert facts.beyond == "pending"
    assert facts.emulated is True


def test_the_whole_matrix(pool: Path) -> None:
    known = {"size_bytes": 1 << 20, "repeat": 2, "latency_count": 3}
    doc = remoting_copy_probe.probe(remoting_copy_probe.Asked(servers=["gpu1"], **known, limit_s=60.0))
    samples, facts = parse("remoting-copy", doc, {**known, "servers": ("gpu1",)})
    assert isinstance(facts, CopyFacts)
    assert len(facts.devices) == 2
    assert {s.metric for s in samples} >= {"client_to_gpu_bandwidth_gb_s", "gpu_to_client_latency_us", "round_trip_us"}


TRAIN = {"batches": ["4", "8"], "turns": 2, "steps": 4, "inputs": 7, "hidden": 5}


def trained(pool: Path, monkeypatch: pytest.MonkeyPatch, program: str = "") -> Any:
    """The probe's document; `program`: what is on the server in place of elastic-ai-train."""
    monkeypatch.setattr(remoting_program, "ON_SERVER", program or str(pool / "bin/elastic-ai-train"))
    return remoting_train_probe.probe(remoting_train_probe.Asked(server="gpu1", **TRAIN, limit_s=120.0))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
def test_a_training_both_ways_has_the_same_bits(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doc = trained(pool, monkeypatch)
    assert doc["error"] is None
    samples, facts = parse("remoting-train", doc, {**TRAIN, "server": "gpu1", "batches": ("4", "8")})
    assert isinstance(facts, RemoteTrainFacts)
    assert {s.metric: s.value for s in samples}["differing_runs"] == 0, facts.differing()
    ran = [(run.turn, run.way, run.batch) for run in facts.runs]
    assert ran[:4] == [(1, "native", 4), (1, "remote", 4), (1, "native", 8), (1, "remote", 8)]
    assert ran[4:] == [(2, "remote", 4), (2, "native", 4), (2, "remote", 8), (2, "native", 8)]
    assert facts.emulated is True
    assert sum(s.metric == "images_per_s_remote_8" for s in samples) == 2 * 3
    assert all(run.costs is not None and run.wait_us for run in facts.runs), "what the model needs"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
def test_answers_both_ways_are_the_same(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_program, "ON_SERVER", str(pool / "bin/elastic-ai-train"))
    doc = remoting_infer_probe.probe(remoting_infer_probe.Asked(server="gpu1", **TRAIN, limit_s=120.0))
    assert doc["error"] is None
    samples, facts = parse("remoting-infer", doc, {**TRAIN, "server": "gpu1", "batches": ("4", "8")})
    assert isinstance(facts, InferFacts)
    assert samples[0].value == 0
    assert len({run.answers_sha256 for run in facts.runs}) == 2, "of each batch size its own"
    assert sum(s.metric == "answer_us_remote_8" for s in samples) == 2 * 3


def test_a_job_that_does_not_train_is_named(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doc = trained(pool, monkeypatch, "/nonexistent/train")
    assert re.match("turn 1, native, batch 4: .*No such file", str(doc["error"]))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
def test_tenants_of_parts_train_at_the_same_time(pool: Path) -> None:
    known = {"turns": 2, "steps": 1200, "batch": 16, "inputs": 16, "hidden": 16}
    asked = remoting_shares_probe.Asked(server="gpu1", parts=["3/4", "5/20"], **known, limit_s=120.0)
    doc = remoting_shares_probe.probe(asked)
    assert doc["error"] is None
    samples, facts = parse("remoting-shares", doc, {**known, "server": "gpu1", "parts": ("3/4", "5/20")})
    assert isinstance(facts, SharesFacts)
    assert facts.differing == ()
    assert [[tenant.part for tenant in turn.tenants] for turn in facts.turns] == [["3/4", "5/20"]] * 2
    assert [s.metric for s in samples[1:]] == ["whole_images_per_s", "together_images_per_s"] * 2


def test_a_tenant_that_does_not_start_ends_the_turn(pool: Path) -> None:
    known = {"turns": 1, "steps": 4, "batch": 4, "inputs": 7, "hidden": 5}
    doc = remoting_shares_probe.probe(
        remoting_shares_probe.Asked(server="gpu1", parts=["3/4", "1/2"], **known, limit_s=60.0)
    )
    # two have room for one: which of them comes first is nobody's choice
    assert re.fullmatch("turn 1: the tenant of (3/4|1/2) did not start: error: no room", str(doc["error"]))


WORLDS = {"turns": 2, "batch": 4, "steps": 4, "inputs": 7, "hidden": 5}


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
def test_a_training_over_more_and_more_servers(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_NODES", "gpu1 gpu2")
    doc = remoting_scale_probe.probe(remoting_scale_probe.Asked(servers=["gpu1", "gpu2"], **WORLDS, limit_s=120.0))
    assert doc["error"] is None
    samples, facts = parse("remoting-scale", doc, {**WORLDS, "servers": ("gpu1", "gpu2")})
    assert isinstance(facts, WorldsFacts)
    order = [("one", 1), ("servers-1", 1), ("servers-2", 2)]
    assert [(world.name, world.gpus) for world in facts.worlds] == [*order, *order[::-1]]
    assert samples[0].value == 0, facts.differing()
    assert facts.emulated is True


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
@pytest.mark.parametrize(("nodes", "names"), [
    ("gpu1 gpu2", ["N1", "L1", "R1"]),
    ("gpu1 gpu1 gpu2 gpu2", ["N2", "L2", "L1R1", "R2"]),
])  # fmt: skip
def test_a_training_in_layouts(pool: Path, monkeypatch: pytest.MonkeyPatch, nodes: str, names: list[str]) -> None:
    monkeypatch.setenv("STAND_IN_NODES", nodes)
    monkeypatch.setattr(remoting_program, "ON_SERVER", str(pool / "bin/elastic-ai-train"))
    described = json.loads((pool / "gpus.json").read_text())["gpus"]
    for at in range(2, len(nodes.split())):
        described.append(
            {**described[0], "uuid": described[0]["uuid"][:-1] + str(at), "pci_bus_id": f"00000000:1{at}:00.0"}
        )
    (pool / "gpus.json").write_text(json.dumps({"gpus": described}))
    doc = remoting_layout_probe.probe(remoting_layout_probe.Asked(server="gpu1", other="gpu2", **WORLDS, limit_s=120.0))
    assert doc["error"] is None
    samples, facts = parse("remoting-layout", doc, {**WORLDS, "server": "gpu1", "other": "gpu2"})
    assert isinstance(facts, WorldsFacts)
    assert [world.name for world in facts.worlds] == [*names, *names[::-1]]
    assert samples[0].value == 0, facts.differing()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs")
def test_a_neighbour_that_fails_or_does_its_worst_harms_nobody(pool: Path) -> None:
    known = {"turns": 1, "steps": 400, "batch": 16, "noise": 64, "inputs": 16, "hidden": 16}
    doc = remoting_neighbours_probe.probe(remoting_neighbours_probe.Asked(server="gpu1", **known, limit_s=120.0))
    assert doc["error"] is None
    samples, facts = parse("remoting-neighbours", doc, {**known, "server": "gpu1"})
    assert isinstance(facts, NeighbourFacts)
    assert samples[0].value == 0, facts.by_fault()
    assert facts.harmed("noise") == []
    (end,) = facts.ends
    assert (end.status, end.after) == (2, 0)
    assert end.words.startswith("elastic-ai-train: cu"), end.words


def test_parts_change_and_boot_ids_are_read(pool: Path) -> None:
    doc = remoting_noreboot_probe.probe(remoting_noreboot_probe.Asked(server="gpu1", wholes=["1/2+1/2", "3/4+5/20"]))
    assert doc["error"] is None
    samples, facts = parse("remoting-noreboot", doc, {"server": "gpu1", "wholes": ("1/2+1/2", "3/4+5/20")})
    assert isinstance(facts, NoRebootFacts)
    assert samples[0].value == 0
    assert facts.before.server == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_servers_that_are_not_there_are_told(pool: Path) -> None:
    doc = remoting_scale_probe.probe(remoting_scale_probe.Asked(servers=["gpu1", "gpu2"], **WORLDS, limit_s=120.0))
    assert doc["error"] == "gpu2 has no GPUs in the pool"


def test_a_server_that_somebody_uses_is_not_measured(pool: Path) -> None:
    pool_stand_in.toolkit(["lease", "request", "-n", "1", "-p", "1/4", "-l", "gpu1"])
    doc = remoting_copy_probe.probe(
        remoting_copy_probe.Asked(servers=["gpu1"], size_bytes=1 << 20, repeat=2, latency_count=3, limit_s=60.0)
    )
    assert "gpu1: GPU 0 is not free" in str(doc["error"])
    pool_stand_in.release("1")


def test_a_token_that_lies_in_the_environment_is_taken_away_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an engine whose client has no file for it; without this its token would never be tried."""
    seen: list[str] = []

    def offer(_tenant: object, _folder: Path) -> dict[str, Any]:
        return {"environment": {"SESSION": "right"}, "secret": "", "secret_variable": "SESSION"}

    def bare(_tenant: object, given: dict[str, Any]) -> dict[str, Any]:
        seen.append(given["environment"]["SESSION"])
        return {"devices": [{}]} if seen[-1] == "right" else {"code": 46}

    monkeypatch.setattr(remoting_isolate_probe.Tenant, "offer", offer)
    monkeypatch.setattr(remoting_isolate_probe.Tenant, "bare", bare)
    tenant = remoting_isolate_probe.Tenant(1, remoting_isolate_probe.Asked(server="gpu1"))
    tenant.tokens(tenant.offer(tmp_path), tmp_path)
    assert seen == ["right", "", "0" * 64]
    tried = [(one["name"], one["breach"], one["promised"]) for one in tenant.tried]
    assert tried == [("no token", False, True), ("a wrong token", False, True)]


def test_a_client_that_looks_long_for_its_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lupine's tries for 62 s; what is cut off before it has said so would be no attempt."""
    patience: dict[str, float] = {}

    def run_tool(argv: list[str], timeout_s: float, _env: object = None) -> Ran:
        what = "connect" if "connect" in argv else "device"
        patience.setdefault(what, timeout_s)
        said = {"how": "refused", "why": ""} if what == "connect" else {"code": 46}
        return Ran(argv, 0, json.dumps(said), "")

    monkeypatch.setattr(remoting_isolate_probe, "run_tool", run_tool)
    monkeypatch.setattr(remoting_isolate_probe.remoting, "release", lambda _lease: None)
    monkeypatch.setattr(
        remoting_isolate_probe.Tenant, "run", lambda *_words, **_more: Ran([], 75, "", "error: it has ended")
    )
    tenant = remoting_isolate_probe.Tenant(1, remoting_isolate_probe.Asked(server="gpu1"))
    tenant.after_the_end({"environment": {}, "servers": ["10.0.0.1:21000"]})
    assert patience["device"] > 2 * 62 > patience["connect"]
    assert [one["breach"] for one in tenant.tried] == [False] * 3


def unchanged(**changes: Any) -> Any:
    asked = {"server": "gpu1", "part": "1/2", "size_bytes": 1 << 20, **changes}
    return remoting_unchanged_probe.probe(remoting_unchanged_probe.Asked(**asked)), asked


@pytest.mark.usefixtures("pool")
def test_a_program_is_the_same_three_ways_and_its_client_afterwards() -> None:
    doc, asked = unchanged()
    assert doc["error"] is None
    samples, facts = parse("remoting-unchanged", doc, asked)
    assert isinstance(facts, UnchangedFacts)
    assert (samples[0].value, [run.way for run in facts.runs]) == (0, ["native", "remote", "part"])
    assert {run.program_sha256 for run in facts.runs} == {
        hashlib.sha256(remoting_unchanged_probe.PROGRAM.encode()).hexdigest()
    }
    assert facts.before.packages.count > 50


@pytest.mark.usefixtures("pool")
def test_a_command_that_something_changes_on_its_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a client that runs programs by a shell of its own would."""
    stand_in = Path(os.environ["POOL_STAND_IN"]) / "bin" / "toolkit"
    changes = 'case "$*" in *" -p "*) shift 9; set -- run -n 1 -l gpu1 -p 1/2 -- python3 -c "pass;$3" "$4";; esac\n'
    words = stand_in.read_text().replace("\nexec ", f"\n{changes}exec ")
    stand_in.write_text(words.replace("shift 9", 'while [ "$1" != -- ]; do shift; done; shift'))
    doc, asked = unchanged()
    assert doc["error"] is None, doc["error"]
    samples, facts = parse("remoting-unchanged", doc, asked)
    assert isinstance(facts, UnchangedFacts)
    assert (samples[0].value, facts.changes()) == (1, ["part: another program than native"])


@pytest.mark.usefixtures("pool")
def test_a_way_that_does_not_run_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    doc, _asked = unchanged(size_bytes=1 << 40)
    assert doc["error"].startswith("native: ")
    monkeypatch.setattr(remoting_unchanged_probe, "contained", lambda: True)
    looks = iter([["ext4"], ["ext4", "rdma_rxe"]])
    real = remoting_unchanged_probe.state
    monkeypatch.setattr(remoting_unchanged_probe, "state", lambda found: {**real(found), "modules": next(looks)})
    assert unchanged()[0]["error"] == "kernel modules of this container's host changed meanwhile: rdma_rxe"
