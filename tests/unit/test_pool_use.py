"""Use of the pool: accounting read by programs in place of Slurm's, and what the report makes of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.figures_case import added, measurement, result
from tests.support.report_fixture import make_run
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.pool import pool_use_probe
from validation.measures.pool.use import PoolUseFacts, _first_host
from validation.measures.pool.use_figures import pool_use_figures
from validation.measures.pool.use_rows_figures import pool_use as use_of
from validation.model import Sample
from validation.probes import ProbeDoc
from validation.probes.tool import now
from validation.report.documents import RunDocuments, read_run
from validation.report.json_report import report_json
from validation.report.render import render

NODES = """\
NodeName=gpu1 CoresPerSocket=8 Gres=gpu:v100:2(S:0-1),shard:v100:10080(S:0-1) State=IDLE
NodeName=gpu2 CoresPerSocket=8 Gres=gpu:h100:1,shard:h100:5040 State=MIXED
NodeName=head CoresPerSocket=8 Gres=(null) State=IDLE
"""
HOUR, UNTIL = 3600, 1_000_000_000
FROM = UNTIL - 10 * HOUR


def row(job: int, state: str, began: float | None, hours: float | None, tres: str, **more: str) -> str:
    """A job that was eligible an hour after FROM, or when it began; hours since FROM."""
    start = None if began is None else FROM + round(began * HOUR)
    end = None if start is None or hours is None else start + round(hours * HOUR)
    cells = {
        "JobIDRaw": str(job), "Account": "research", "Partition": "all", "State": state,
        "Eligible": str(FROM if start is None else min(start, FROM + HOUR)),
        "Start": "Unknown" if start is None else str(start), "End": "Unknown" if end is None else str(end),
        "AllocTRES": "" if start is None else tres, "ReqTRES": tres,
        "NodeList": "None assigned" if start is None else "gpu1", "TimelimitRaw": "600",
    }  # fmt: skip
    return "|".join((cells | more).values())


ROWS = [
    row(1, "COMPLETED", 0, 4, "billing=5040,cpu=1,gres/shard=5040,mem=100M,node=1"),
    row(2, "CANCELLED by 2002", 2, 6, "billing=2520,cpu=1,gres/shard=2520,mem=100M,node=1", Account="teaching"),
    row(3, "RUNNING", 8, None, "billing=5040,cpu=1,gres/gpu=1,node=1", NodeList="gpu[2-3]", Account=""),
    row(4, "PENDING", None, None, "billing=5040,cpu=1,gres/shard=5040,node=1"),
    row(5, "CANCELLED by 0", None, None, "billing=5040,cpu=1,gres/gpu=1,node=1", Start="None", End=str(UNTIL)),
    row(6, "COMPLETED", 0, 9, "billing=4,cpu=4,mem=1G,node=1", NodeList="client1"),
]


def watched(busy_h: float, seen_h: float) -> dict[str, float]:
    return {"busy_s": busy_h * HOUR, "seen_s": seen_h * HOUR}


def document(rows: list[str] = ROWS, **facts: Any) -> ProbeDoc:
    found = {
        "from_s": FROM, "until_s": UNTIL, "nodes": pool_use_probe.nodes(NODES.splitlines()), "emulated": False,
        "unwatched": "", "used": {"gpu1": watched(3, 20), "gpu2": watched(1, 5)}, "lines": len(rows),
    }  # fmt: skip
    return {
        "kind": "pool-use", "tool": "sacct", "tool_version": "", "command": pool_use_probe.sacct(30), "returncode": 0,
        "stdout": "".join(f"{line}\n" for line in rows), "stderr": "", "facts": found | facts,
        "started": now(), "ended": now(), "duration_s": 0.1, "error": None,
    }  # fmt: skip


def record(rows: list[str] = ROWS, **facts: Any) -> PoolUseFacts:
    found = parse("pool-use", document(rows, **facts), {"days": 30.0})[1]
    assert isinstance(found, PoolUseFacts)
    return found


def test_jobs_with_gpus_become_requests() -> None:
    found = record()
    assert found.parts_per_gpu == 5040
    assert {c.name: c.gpus for c in found.classes} == {"v100": 2, "h100": 1}
    one, two, three = found.requests
    assert (one.gpu_class, one.users, one.parts, one.arrived_s - FROM, found.held_s(one)) == (
        "v100",
        "research",
        5040,
        0,
        4 * HOUR,
    )
    assert (two.users, two.parts, two.started_s - two.arrived_s, found.held_s(two)) == (
        "teaching",
        2520,
        HOUR,
        3 * HOUR,
    )
    assert (three.gpu_class, three.users, three.ended_s, found.held_s(three)) == (
        "h100",
        "no class of users",
        None,
        2 * HOUR,
    )
    assert (found.waiting, found.never) == (1, 1)


def test_the_share_that_was_held_is_the_sample() -> None:
    samples, _ = parse("pool-use", document(), {"days": 30.0})
    assert samples == [Sample(metric="held_ratio", value=9 / 30, unit="ratio")]


def test_what_began_before_the_time_counts_from_its_beginning_only() -> None:
    before = row(9, "COMPLETED", -3, 5, "gres/gpu=1", Eligible=str(FROM - 4 * HOUR))
    found = record([before, row(10, "COMPLETED", -3, 3, "gres/gpu=1", Eligible=str(FROM - 4 * HOUR))])
    assert [found.held_s(r) for r in found.requests] == [2 * HOUR]  # the other had ended


def test_a_job_on_a_server_that_left_is_a_class_of_its_own() -> None:
    found = record([*ROWS, row(7, "COMPLETED", 0, 1, "gres/gpu=1", NodeList="old7")])
    assert found.requests[-1].gpu_class == "servers that left"
    assert found.classes[1].gpus == 0 or found.classes[-1].gpus == 0


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("gpu1", "gpu1"), ("gpu[1-2,4]", "gpu1"), ("rack[01-03]n[2,4],gpu9", "rack01n2"), ("gpu3,gpu4", "gpu3"), ("", "")],
)
def test_the_first_of_a_list_of_hosts(hosts: str, first: str) -> None:
    assert _first_host(hosts) == first


@pytest.mark.parametrize(
    ("rows", "facts", "words"),
    [
        ([], {}, "no job that held a GPU"),
        ([ROWS[5]], {}, "no job that held a GPU"),
        ([ROWS[0] + "|more"], {}, "not 11 fields"),
        ([ROWS[0].rsplit("|", 3)[0]], {}, "not 11 fields"),
        ([row(1, "COMPLETED", 0, 4, "gres/gpu=1", Start="2026-11-23T10:00:00")], {}, "no time in seconds"),
        ([*ROWS, row(1, "COMPLETED", 4, -1, "gres/gpu=1")], {}, "in this order"),
        (ROWS[2:3], {}, "begins before the first job"),
        (ROWS[:-1], {"lines": len(ROWS)}, f"{len(ROWS) - 1} rows of sacct, not the {len(ROWS)}"),
        (ROWS, {"nodes": []}, "no node with GPUs"),
        (ROWS, {"until_s": FROM}, "a time ends"),
        (ROWS, {"used": {"gpu1": {"busy_s": 2.0, "seen_s": 1.0}}}, "2.0 GPU-seconds busy of 1.0 seen"),
        (ROWS, {"nodes": [{"name": "a", "class": "v", "gpus": 2, "shards": 3}]}, "not the same for each"),
    ],
)
def test_a_record_that_does_not_add_up_is_refused(rows: list[str], facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        record(rows, **facts)


def test_nodes_that_count_a_gpu_in_different_parts_are_refused() -> None:
    nodes = [{"name": n, "class": "v100", "gpus": 1, "shards": s} for n, s in (("gpu1", 5040), ("gpu2", 100))]
    with pytest.raises(ParseError, match="100 or 5040 shards"):
        record(nodes=nodes)


DAY = 86_400
AGO = {"gpu_utilization": 9 * DAY, "pool_leased": 2 * DAY}
"""Since when there are readings of it, or any that is not 0."""


class Recorder(BaseHTTPRequestHandler):
    """Prometheus's answers to instant queries: of the pool's series those that it has."""

    def do_GET(self) -> None:
        words = parse_qs(urlsplit(self.path).query)
        query = words["query"][0]
        value = "12" if "sum by" in query else "120"
        found: list[Any] = [] if "emulated" in query else [{"metric": {"node": "gpu1"}, "value": [1, value]}]
        if "elastic_ai:" in query:
            found = self.pool_wide(query, *(float(words[key][0]) for key in ("start", "end", "step")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": {"result": found}}).encode())

    def pool_wide(self, query: str, start: float, end: float, step: float) -> list[Any]:
        """12 % in use before the first lease, 48 % since, when half of the hours have no reading."""
        name = next(name for name in ("gpu_utilization", "pool_leased") if name in query)
        leased = end - AGO.get("pool_leased", 0)
        values = []
        for at in (start + step * number for number in range(int((end - start) / step) + 1)):
            if name == "pool_leased" and name in AGO:
                values.append([at, "0.5" if at > leased else "0"])
            elif name in AGO and at > end - AGO[name] and (at <= leased or round(at / step) % 2):
                values.append([at, "0.48" if at > leased else "0.12"])
        return [{"metric": {}, "values": values}] if values else []

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs in place of sacct and scontrol; sacct answers with times only where it is asked for seconds."""
    began = round(time.time()) - 2 * HOUR
    line = f"7|research|all|RUNNING|{began}|{began + 60}|Unknown|gres/gpu=1|gres/gpu=1|gpu1|600"
    answers = {"scontrol": f"cat <<'X'\n{NODES}X\n", "sacct": f'[ "$SLURM_TIME_FORMAT" = %s ] && echo "{line}"\n'}
    for name, text in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_the_head_is_asked_for_jobs_and_for_what_ran(slurm: Path, url: str) -> None:
    made = pool_use_probe.probe(pool_use_probe.Asked(days=30, url=url))
    assert made["error"] is None
    assert made["facts"]["until_s"] - made["facts"]["from_s"] == pytest.approx(
        2 * HOUR, abs=5
    )  # the first job came then
    found = parse("pool-use", made, {"days": 30.0})[1]
    assert isinstance(found, PoolUseFacts)
    assert [(c.name, c.busy_s, c.seen_s) for c in found.classes] == [("h100", None, None), ("v100", 3600, 36000)]
    assert found.emulated is False


def test_utilisation_before_and_since_the_first_lease_is_read(
    slurm: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def history(**ago: int) -> Any:
        monkeypatch.setattr(f"{__name__}.AGO", ago)
        made = pool_use_probe.probe(pool_use_probe.Asked(days=30, url=url))
        found = parse("pool-use", made, {"days": 30.0})[1]
        assert isinstance(found, PoolUseFacts)
        return found.history

    read = history(gpu_utilization=9 * DAY, pool_leased=2 * DAY)
    assert (read.before.ratio, read.before.seconds) == (pytest.approx(0.12), pytest.approx(7 * DAY, abs=HOUR))
    assert (read.since.ratio, read.since.seconds) == (pytest.approx(0.48), pytest.approx(DAY, abs=HOUR))
    assert read.series == "elastic_ai:gpu_utilization:ratio"
    read = history(gpu_utilization=9 * DAY)
    assert (read.pooled_s, read.since, read.before.seconds) == (None, None, pytest.approx(9 * DAY, abs=HOUR))
    read = history(gpu_utilization=2 * DAY, pool_leased=2 * DAY)
    assert (read.before, read.since.seconds) == (None, pytest.approx(DAY, abs=HOUR))
    assert history(pool_leased=2 * DAY) is None
    monkeypatch.setattr(pool_use_probe, "history", lambda *_: [][0])
    made = pool_use_probe.probe(pool_use_probe.Asked(days=30, url=url))
    found = parse("pool-use", made, {"days": 30.0})[1]
    assert isinstance(found, PoolUseFacts)
    assert (found.history, found.unwatched) == (None, "")
    assert "list index out of range" in found.unread
    assert [c.busy_s for c in found.classes] == [None, 3600], "what is known of the last month stays"


def test_without_monitoring_the_hours_held_are_known_all_the_same(slurm: Path) -> None:
    made = pool_use_probe.probe(pool_use_probe.Asked(days=30, url="http://127.0.0.1:9"))
    assert made["error"] is None
    found = parse("pool-use", made, {})[1]
    assert isinstance(found, PoolUseFacts)
    assert "127.0.0.1:9" in found.unwatched
    assert found.history is None
    assert found.emulated is None


@pytest.mark.parametrize("name", ["sacct", "scontrol"])
def test_without_accounting_it_says_so(slurm: Path, url: str, name: str) -> None:
    (slurm / name).write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    made = pool_use_probe.probe(pool_use_probe.Asked(days=30, url=url))
    assert made["error"] == f"{name} ended with exit status 1: Slurm accounting storage is disabled"


# --- the report -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return read_run(make_run(tmp_path_factory.mktemp("bare") / "run"))


def with_record(documents: RunDocuments, found: PoolUseFacts | None, error: str | None = None) -> RunDocuments:
    m = measurement("pool-use", "head", ("head",), params={"days": 30.0})
    made = result(m, status="ok" if found else "failed")
    return added(documents, [(m, made.model_copy(update={"facts": found or {}, "error": error}))])


def test_hours_by_class_add_up(bare: RunDocuments) -> None:
    use = use_of(with_record(bare, record()))
    v100 = next(c for c in use.classes if c.gpu_class == "v100")
    assert (v100.capacity_h, v100.held_h, v100.free_h, v100.used_h, v100.idle_h) == (20, 7, 13, 3, 4)
    h100 = next(c for c in use.classes if c.gpu_class == "h100")
    assert (h100.held_h, h100.used_h, h100.idle_h) == (2, None, None)
    assert h100.unwatched == "monitoring saw 5 of 10 GPU-hours"
    assert [(u.users, u.requests, u.held_h, u.mean_wait_s) for u in use.users] == [
        ("no class of users", 1, 2, 7 * HOUR), ("research", 1, 4, 0), ("teaching", 1, 3, HOUR)
    ]  # fmt: skip
    assert (use.running, use.waiting, use.never) == (1, 1, 1)


def test_the_replay_is_of_each_class_of_gpus(bare: RunDocuments) -> None:
    documents = with_record(bare, record())
    by = {r.gpu_class: r for r in use_of(documents).replays}
    assert (
        by["h100"].not_measured
        == "one class of users alone held such GPUs (no class of users), and there is nobody to divide them with"
    )
    # research wants a GPU for 4 h, teaching half of one for 6 h; each has one alone: nobody waits in any arrangement
    pool, divided, silos, smaller = by["v100"].arrangements
    assert [a.mean_wait_s for a in (pool, divided, silos, smaller)] == [0, 0, 0, 0]
    assert (pool.gpus, silos.gpus, smaller.gpus) == (2, 2, 2)
    figures = {f.id: f for f in pool_use_figures(documents)}
    assert "Divided, 2 GPUs would have done: pooling saved none" in figures["pool-replay-v100"].caption
    assert "Not measured: one class of users alone" in (figures["pool-replay-h100"].empty or "")


def test_a_pool_that_serves_by_turns_saves_gpus(bare: RunDocuments) -> None:
    def turn(job: int, hour: int, users: str) -> str:
        began = str(FROM + hour * HOUR)
        return row(job, "COMPLETED", hour, 1, "gres/gpu=1", Account=users, Eligible=began)

    rows = [turn(2 * hour + i, hour, "day" if hour % 2 else "night") for hour in range(8) for i in range(2)]
    documents = with_record(bare, record(rows))
    replay = next(r for r in use_of(documents).replays if r.gpu_class == "v100")
    pool, divided, silos, smaller = replay.arrangements
    # alone with one GPU, the second request of each turn waits an hour; two for each make four
    assert (pool.mean_wait_s, divided.mean_wait_s, silos.gpus, silos.mean_wait_s) == (0, HOUR / 2, 4, 0)
    assert smaller.gpus == 2
    words = next(f for f in pool_use_figures(documents) if f.id == "pool-replay-v100").caption
    assert "0.0 s on average in the pool, 30 min 00 s with the same GPUs divided" in words
    assert "divided GPUs would have to be 4 instead of 2" in words


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        (lambda bare: bare, "the suite operations was not selected for this run"),
        (lambda bare: with_record(bare, None, "sacct is not installed on this node"), "sacct is not installed"),
    ],
)
def test_what_was_not_recorded_is_not_measured_with_its_reason(bare: RunDocuments, documents: Any, words: str) -> None:
    (figure,) = pool_use_figures(documents(bare))
    assert figure.svg is None
    assert (figure.empty or "").startswith("Not measured: ")
    assert words in (figure.empty or "")
    assert words in json.loads(report_json(documents(bare)))["pool_use"]["not_measured"]


def test_emulated_gpus_and_too_many_held_hours_are_said(bare: RunDocuments) -> None:
    gone = [row(i, "RUNNING", 0, None, "gres/gpu=1", NodeList="gpu2") for i in range(2)]
    words = pool_use_figures(with_record(bare, record(gone, emulated=True)))[0].caption
    assert "GPUs are emulated" in words
    assert "Of h100 more was held than there is now" in words
    assert "On v100 more ran than was held: programs that Slurm knows nothing of" in words


READ = {
    "series": "elastic_ai:gpu_utilization:ratio",
    "look_s": 60,
    "first_s": FROM - 9 * DAY,
    "pooled_s": FROM - 2 * DAY,
}
READ |= {"before": {"ratio": 0.12, "seconds": 7 * DAY}, "since": {"ratio": 0.484, "seconds": 2 * DAY}}


def utilisation_of(bare: RunDocuments, **facts: Any) -> tuple[tuple[str, ...], ...]:
    figures = {f.id: f for f in pool_use_figures(with_record(bare, record(**facts)))}
    table = figures["pool-before-and-since"].table
    assert table is not None
    return table.rows


def test_utilisation_before_and_since_stands_beside_what_is_published(bare: RunDocuments) -> None:
    before, since, published = utilisation_of(bare, history=READ)
    assert before[1:] == ("12.0 %", "168 h 00 min", "Prometheus, elastic_ai:gpu_utilization:ratio")
    assert (since[0], since[1]) == ("Since then (2001-09-06 15:46:40 UTC)", "48.4 %")
    assert published[1] == "5.0 % to 20.0 %"
    assert published[3].startswith("frankdenneman.nl 2020-2021")
    told = use_of(with_record(bare, record(history=READ))).utilisation
    assert told is not None
    assert (told.before, told.since, told.published) == (0.12, 0.484, (0.05, 0.2))


@pytest.mark.parametrize(
    ("facts", "before", "since"),
    [
        ({"history": None}, "monitoring has no reading of utilisation", "monitoring has no reading of utilisation"),
        ({"unwatched": "Prometheus at x: refused", "history": None}, "Prometheus at x: refused", "Prometheus at x"),
        (
            {"history": READ | {"before": None, "since": {"ratio": 0.5, "seconds": 1800}}},
            "monitoring recorded nothing before a GPU of the pool was first leased, and a day is the least",
            "monitoring recorded for 30 min 00 s since then, and a day is the least",
        ),
        ({"history": READ | {"pooled_s": None, "since": None}}, "12.0 %", "no GPU of the pool was leased yet"),
    ],
)
def test_utilisation_that_was_not_recorded_says_why(
    bare: RunDocuments, facts: dict[str, Any], before: str, since: str
) -> None:
    rows = utilisation_of(bare, **facts)
    assert before in rows[0][1]
    assert rows[0][1].startswith("not measured: ") or before == "12.0 %"
    assert rows[1][1].startswith(f"not measured: {since}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": {"ratio": 0.1, "seconds": 8 * DAY}}, "readings of 691200 s before, and 604800 s there were"),
        ({"since": {"ratio": 0.1, "seconds": 3 * DAY}}, "readings of 259200 s since, and 208800 s there were"),
        ({"since": {"ratio": 1.1, "seconds": DAY}}, "ratio"),
        ({"pooled_s": None}, "readings of 172800 s since, and 0 s there were"),
        ({"pooled_s": "then"}, "the first lease"),
    ],
)
def test_a_history_that_does_not_add_up_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        record(history=READ | change)


def test_html_and_json_have_the_page_and_agree(bare: RunDocuments) -> None:
    documents = with_record(bare, record())
    page = render(documents)
    assert page.count('id="pool-use"') == 1
    assert '<h3 id="pool-use">Use of the pool</h3>' in page
    told = json.loads(report_json(documents))["pool_use"]
    assert told["classes"][1]["held_h"] == 7
    assert "<td>7</td>" in page
    assert report_json(documents) == report_json(replace(documents))
