"""The rules of role monitoring by Prometheus's own promtool: each alert fires when it says, and else is quiet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.alert_cases import CASES, Case, steady
from tests.support.alert_cases_bmc import BMC
from tests.support.alert_cases_faults import FAULTS
from tests.support.alert_cases_more import MORE
from tests.support.alert_cases_parts import PARTS
from tests.support.alert_cases_soak import SOAK
from tests.support.alert_rules import ALERTS, FILES

ALL = (*CASES, *PARTS, *MORE, *FAULTS, *BMC, *SOAK)

PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: Debian's package prometheus")


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)


def of_case(case: Case) -> list[dict[str, Any]]:
    """A case as promtool's tests."""
    fires = [
        {"exp_labels": {**labels, **ALERTS[case.alert]["labels"]}, "exp_annotations": {"summary": summary}}
        for labels, summary in ((case.labels, case.summary), *case.twins)
    ]
    asked = {"alertname": case.alert}
    looks = [
        {**asked, "eval_time": f"{case.at - 1}m", "exp_alerts": []},
        {**asked, "eval_time": f"{case.at}m", "exp_alerts": fires},
    ]
    quiet = [{**asked, "eval_time": f"{minute}m", "exp_alerts": []} for minute in (case.at, 2 * case.at)]
    return [
        {"interval": "1m", "input_series": series(given), "alert_rule_test": wanted}
        for given, wanted in ((case.bad, looks), (case.well, quiet))
    ]


def series(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in given.items()]


def hold(folder: Path, tests: list[dict[str, Any]]) -> None:
    """The rules pass promtool's tests."""
    path = folder / "tests.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(file) for file in FILES], "evaluation_interval": "1m", "tests": tests})
    )
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", *FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert sorted(case.alert for case in ALL) == sorted(ALERTS)


def test_each_alert_fires_when_it_says_and_is_quiet_when_all_is_well(tmp_path: Path) -> None:
    """By Prometheus's own evaluation, with the sentence that somebody reads at night."""
    hold(tmp_path, [test for case in ALL for test in of_case(case)])


def test_the_pools_shares_are_of_all_servers(tmp_path: Path) -> None:
    """The three recorded rules, which dashboard and report read."""
    given = {
        'elastic_ai_pool_leased_gpus{node="gpu1"}': steady(1),
        'elastic_ai_pool_leased_gpus{node="gpu2"}': steady(0.5),
        'elastic_ai_pool_gpus{node="gpu1"}': steady(4),
        'elastic_ai_pool_gpus{node="gpu2"}': steady(2),
        'elastic_ai_gpu_utilization_ratio{node="gpu1",gpu="0"}': steady(0.5),
        'elastic_ai_gpu_utilization_ratio{node="gpu2",gpu="0"}': steady(0.25),
        'elastic_ai_gpu_memory_used_bytes{node="gpu1",gpu="0"}': steady(1),
        'elastic_ai_gpu_memory_total_bytes{node="gpu1",gpu="0"}': steady(16),
        'elastic_ai_gpu_memory_used_bytes{node="gpu2",gpu="0"}': steady(3),
        'elastic_ai_gpu_memory_total_bytes{node="gpu2",gpu="0"}': steady(16),
    }
    wanted = {
        "elastic_ai:pool_leased:ratio": 0.25,
        "elastic_ai:gpu_utilization:ratio": 0.375,
        "elastic_ai:gpu_memory:ratio": 0.125,
    }
    asked = [
        {"expr": name, "eval_time": "5m", "exp_samples": [{"labels": name, "value": value}]}
        for name, value in wanted.items()
    ]
    hold(tmp_path, [{"interval": "1m", "input_series": series(given), "promql_expr_test": asked}])
