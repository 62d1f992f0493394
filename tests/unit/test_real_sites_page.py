"""docs/reference/real-sites.md: its desk check has every step, and the tests that it names are there."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.node_modules import ROOT

PAGE = (ROOT / "docs/reference/real-sites.md").read_text(encoding="utf-8")
#: Word of the step in which a role is, where that is not the role's own name.
STEPS = {
    "bios": "BIOS", "horovod": "training", "jupyterhub": "JupyterHub", "pool_login": "logins", "pool_page": "page",
    "remoting_client": "remoting", "remoting_server": "remoting",
}  # fmt: skip
#: Installs what the others ask it for.
NO_STEP = {"packages"}


def desk_check() -> list[list[str]]:
    """The rows of the table under `Two orders, step by step`, without its head."""
    section = PAGE.partition("## Two orders, step by step")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_step_says_what_a_test_shows_and_what_only_a_rack_can() -> None:
    rows = desk_check()
    assert len(rows) > 15
    assert [row for row in rows if len(row) != 3 or not all(row)] == []
    assert [step for step, shown, _ in rows if not re.search(r"\btest_\w+\.py\b", shown)] == [], "shown by no test"


def test_every_step_of_the_desk_check_that_gave_the_orders_their_chances_is_there() -> None:
    """The steps of `site.yml` whose chances were judged for both orders, from preflight to the training."""
    steps = " ".join(row[0] for row in desk_check())
    for word in (
        "preflight", "repos", "base", "firewall", "kernel", "tuning", "ofed", "fabric", "roce", "nvidia_driver",
        "gpudirect", "cuda", "dcgm", "reboot", "gate", "docker", "nvidia_container_toolkit", "remoting", "slurm",
        "monitoring", "acceptance", "training",
    ):  # fmt: skip
        assert re.search(rf"\b{word}\b", steps), word


@pytest.mark.parametrize("role", sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir()))
def test_every_role_is_in_a_step(role: str) -> None:
    if role in NO_STEP:
        return
    steps = " ".join(row[0] for row in desk_check())
    assert re.search(rf"\b{STEPS.get(role, role)}\b", steps), f"no step of the desk check is about role {role}"


def test_every_test_that_the_page_names_is_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    there = {path.rpartition("/")[2] for path in listed.split()}
    named = set(re.findall(r"test_\w+\.py", PAGE))
    assert len(named) > 40
    assert named - there == set()
