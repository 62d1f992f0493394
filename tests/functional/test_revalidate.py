"""The timer that validates a site again: its units, what is refused before them, the figures that alerts ask for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from prometheus_client.parser import text_string_to_metric_families

from tests.support.monitoring_head import role
from tests.support.report_fixture import make_run
from toolkit import trends
from toolkit.cli import cli
from toolkit.exits import Exit
from toolkit.trends import OVERDUE_HOURS
from validation.trend.metrics import HELP, MOST_DRIFTS, metrics_text

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles/monitoring"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text("utf-8"))
WORDS = ["--inventory", "/srv/site", "--fabric", "roce40", "--profile", "network-quick"]
PAIR = "tcp-latency.gpu1-fab0.gpu2-fab0"
DAYS = [f"2026-11-{day:02d}T02-00-00Z-tcp10" for day in (1, 8, 15)]


def units(folder: Path, toolkit: Path, **changes: Any) -> dict[str, str]:
    """Unit files as the role writes them, in `folder`; name -> text."""
    made = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    values = {**DEFAULTS, "monitoring_revalidate": WORDS, "monitoring_revalidate_toolkit": str(toolkit), **changes}
    values["__monitoring_site_metrics"] = "/var/lib/prometheus/node-exporter/elastic_ai_site.prom"
    values["__monitoring_system"] = {"user": "prometheus"}
    found = {}
    for kind in ("service", "timer"):
        text = made.get_template(f"revalidate.{kind}.j2").render(values)
        found[kind] = text
        (folder / f"elastic-ai-revalidate.{kind}").write_text(text)
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path):
    toolkit = tmp_path / "toolkit"
    toolkit.write_text("#!/bin/sh\n")
    toolkit.chmod(0o755)
    units(tmp_path, toolkit)
    for kind in ("service", "timer"):
        unit = str(tmp_path / f"elastic-ai-revalidate.{kind}")
        verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        mine = [line for line in (done.stdout + done.stderr).splitlines() if "elastic-ai-revalidate" in line]
        assert (done.returncode, mine) == (0, []), done.stderr


def test_the_units_call_commands_as_they_are(tmp_path):
    """Every word after the toolkit's name is an option that it has."""
    text = units(tmp_path, Path("/opt/toolkit"))["service"]
    calls = [
        line.partition("=")[2].lstrip("-").split()[1:] for line in text.splitlines() if line.startswith("ExecStart=")
    ]
    assert [call[0] for call in calls] == ["validate", "trend"]
    for name, *words in calls:
        command = cli.get_command(None, name)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
    assert calls[1][calls[1].index("--overdue-hours") + 1] == str(OVERDUE_HOURS)
    timer = units(tmp_path, Path("/opt/toolkit"), monitoring_revalidate_at="*-*-* 03:00")["timer"]
    assert "OnCalendar=*-*-* 03:00\n" in timer


def play(folder: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    """What the role looks at before it writes the units, on this machine, in check mode."""
    values = {**DEFAULTS, "monitoring_revalidate": WORDS, "monitoring_node": {"files": ["/opt/toolkit"]}}
    values |= {"monitoring_revalidate_toolkit": "/opt/toolkit", **variables}
    include = {"ansible.builtin.include_role": {"name": "monitoring", "tasks_from": "revalidate.yml"}, "name": "Look"}
    book = folder / "play.yml"
    book.write_text(
        json.dumps(
            [{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": values, "tasks": [include]}]
        )
    )
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": str(ROOT / "roles"), "ANSIBLE_NOCOLOR": "1"}
    command = ["ansible-playbook", "-i", "localhost,", "--check", str(book)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"monitoring_revalidate_at": "every now and then"}, "every now and then"),
        ({"monitoring_revalidate": [*WORDS, "a b"]}, "a word has something else than letters"),
        ({"monitoring_revalidate": [*WORDS, "$(reboot)"]}, "a word has something else than letters"),
        ({"monitoring_revalidate": [*WORDS, "%h"]}, "a word has something else than letters"),
        ({"monitoring_revalidate_toolkit": "/opt/other"}, "/opt/other is not on localhost: install the toolkit"),
    ],
)
def test_what_could_not_run_is_refused_before_a_timer_starts_it(tmp_path, changes, said):
    done = play(tmp_path, **changes)
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout
    assert "changed=0" in done.stdout


UNITS = [f"/etc/systemd/system/elastic-ai-revalidate.{kind}" for kind in ("service", "timer")]
TEXTFILES = "/var/lib/prometheus/node-exporter"


def test_the_role_writes_units_and_opens_the_folder_of_figures_only_where_it_is_asked(tmp_path):
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
    files, folders, _ = role(tmp_path / "on", monitoring_revalidate=WORDS, monitoring_revalidate_at="*-*-* 03:00")
    service, timer = (files[path]["content"] for path in UNITS)
    assert "ExecStart=-/opt/toolkit validate --inventory /srv/site --fabric roce40 --profile network-quick " in service
    assert f"--metrics {TEXTFILES}/elastic_ai_site.prom" in service
    assert "OnCalendar=*-*-* 03:00" in timer
    assert folders[TEXTFILES]["mode"] == "0775"
    assert f"{TEXTFILES}/elastic_ai_site.prom" not in files
    files, folders, _ = role(tmp_path / "off")
    assert [files[path].get("state") for path in UNITS] == ["absent", "absent"]
    assert files[f"{TEXTFILES}/elastic_ai_site.prom"]["state"] == "absent"
    assert folders[TEXTFILES]["mode"] == "0755"


# --- the figures that alerts ask for ---------------------------------------------------------------------------


def add(runs_dir: Path, run: str, **changes: Any) -> Path:
    return make_run(runs_dir / run, **{"virtual": False, "run": run, "suites": ("preflight", "transport"), **changes})


def told(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = text_string_to_metric_families(path.read_text())
    return {f.name: [(s.labels, s.value) for s in f.samples] for f in families}


def command(runs_dir: Path, metrics: Path, *more: str) -> int:
    words = ["trend", "--runs-dir", str(runs_dir), "--format", "json", "--metrics", str(metrics), *more]
    return CliRunner().invoke(cli, words).exit_code


def test_a_drift_is_a_series_and_its_end_is_the_end_of_the_series(tmp_path):
    metrics = tmp_path / "elastic_ai_site.prom"
    for n, run in enumerate(DAYS):
        add(tmp_path / "runs", run, day=n + 1)
    add(tmp_path / "runs", "2026-11-22T02-00-00Z-tcp10", day=9, drift={PAIR: 1.4})
    assert command(tmp_path / "runs", metrics, "--overdue-hours", "48") == Exit.FAILED
    found = told(metrics)
    common = {"site": "lab", "fabric": "tcp10", "rehearsal": "false"}
    assert set(found) == set(HELP)
    assert found["elastic_ai_site_overdue_seconds"] == [(common, 48 * 3600)]
    assert found["elastic_ai_site_validated_timestamp_seconds"] == [(common, 1795312800)]
    ((labels, change),) = found["elastic_ai_site_drift_ratio"]
    assert labels == {**common, "criterion": "tr.netlat", "subject": "gpu1/fab0>gpu2/fab0", "kind": "step"}
    assert 0.3 < change < 0.5
    add(tmp_path / "runs", "2026-11-29T02-00-00Z-tcp10", day=10)
    assert command(tmp_path / "runs", metrics) == Exit.OK
    assert told(metrics)["elastic_ai_site_drift_ratio"] == []
    assert told(metrics)["elastic_ai_site_overdue_seconds"] == [(common, OVERDUE_HOURS * 3600)]


def test_the_first_run_alone_and_one_that_failed_are_told(tmp_path):
    metrics = tmp_path / "a.prom"
    add(tmp_path / "runs", DAYS[0], slow="gpu2")
    assert command(tmp_path / "runs", metrics) == Exit.OK
    ((labels, passed),) = told(metrics)["elastic_ai_site_passed"]
    assert (labels["outcome"], passed) == ("failed", 0)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a.prom"]


def test_where_nothing_was_judged_the_last_figures_stay_and_grow_old(tmp_path):
    metrics = tmp_path / "a.prom"
    metrics.write_text("# of last week\n")
    (tmp_path / "runs").mkdir()
    assert command(tmp_path / "runs", metrics) == Exit.USAGE
    assert metrics.read_text() == "# of last week\n"
    assert CliRunner().invoke(cli, ["trend", "--overdue-hours", "4"]).exit_code == Exit.USAGE
    add(tmp_path / "runs", DAYS[0])
    assert command(tmp_path / "runs", tmp_path / "no" / "folder" / "a.prom") == Exit.USAGE


def test_of_many_drifts_the_largest_are_series(tmp_path):
    for n, run in enumerate(DAYS):
        add(tmp_path, run, day=n + 1)
    trend = trends.make([], ("json",), None, tmp_path).trend
    drift = {
        "criterion": "tr.netlat", "unit": "us", "kind": "step", "expected": 1.0, "value": 2.0, "p": 0.0, "worse": True,
    }  # fmt: skip
    many = [{**drift, "subject": f"s{n}", "change": float(n)} for n in range(200, 0, -1)]
    full = trend.model_validate({**trend.model_dump(by_alias=True), "drifts": many})
    text = metrics_text(full, 60).decode()
    assert text.count("elastic_ai_site_drift_ratio{") == MOST_DRIFTS
    assert 'subject="s200"' in text
