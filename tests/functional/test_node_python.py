"""What runs on nodes needs no newer Python than they have: 3.9, on EL 9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.node_modules import ROOT

VERMIN = Path(sys.executable).with_name("vermin")
ON_NODES = ("plugins/modules", "plugins/module_utils", "toolkit/lease", "validation/probes", "roles")


def test_what_runs_on_nodes_is_python_3_9() -> None:
    command = [str(VERMIN), "-t=3.9-", "--violations", "--no-tips", *ON_NODES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
