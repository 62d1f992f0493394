"""Five power cuts by chance in a lab, of controller, GPU server and head, during the commands of day two, with jobs.

ELASTIC_AI_POWER_CUTS asks for more of them, ELASTIC_AI_POWER_CUTS_FOR_S for none after so many seconds, and
ELASTIC_AI_POWER_CUTS_LAB names the lab, so that several can be cut side by side.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import Lab, toolkit, validation_of

from tests.support import power_cuts
from tests.support.traces import traces

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
LAB = os.environ.get("ELASTIC_AI_POWER_CUTS_LAB", "cuts")
CUTS, SEED = int(os.environ.get("ELASTIC_AI_POWER_CUTS", "5")), int(os.environ.get("ELASTIC_AI_POWER_CUTS_SEED", "44"))
FOR_S = float(os.environ.get("ELASTIC_AI_POWER_CUTS_FOR_S", "inf"))


def test_after_each_power_cut_the_same_command_goes_on_to_its_end(tmp_path: Path) -> None:
    toolkit("lab", "down", "--name", LAB)  # of a run that was cut off
    up = toolkit("lab", "up", "--name", LAB, "--inventory", tmp_path / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        key, lab = tmp_path / "key", Lab(LAB, tmp_path / "inventory")
        made = subprocess.run(["age-keygen", "-o", key], capture_output=True, text=True, check=True)
        more = lab.inventory / "group_vars/all/backup.yml"
        more.parent.mkdir(parents=True, exist_ok=True)
        more.write_text(f"backup_recipients: [{made.stderr.split()[-1]}]\nhorovod_state: absent\n")
        site = power_cuts.Site(LAB, lab.inventory, tmp_path / "runs", key, tmp_path / "backups")
        site.declared(power_cuts.OLD)
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        suites = [word for suite in ("preflight", "as-built", "transport") for word in ("--suite", suite)]
        accepted = validation_of(lab.inventory, tmp_path / "runs", "--fabric", "tcp10", *suites, "--format", "html")
        assert accepted.exit_code == 0, accepted.stderr
        made = []
        for cut in power_cuts.cuts(site, CUTS, SEED, for_s=FOR_S):
            print(json.dumps(asdict(cut)), flush=True)
            made.append(cut)
        assert [cut for cut in made if cut.wrong] == []
        assert made[-1].jobs["over"] > 0
    finally:
        down = toolkit("lab", "down", "--name", LAB)
    assert down.returncode == 0, down.stderr
    assert not any(traces(LAB).values())
