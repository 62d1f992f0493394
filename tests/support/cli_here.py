"""The command line with a launcher that runs probes on this machine: `python cli_here.py validate ...`.

Environment: SECONDS_BANDWIDTH shortens or stretches the bandwidth measurements, REFUSE names nodes (comma separated)
that cannot be reached.
"""

from __future__ import annotations

import os
import sys

from tests.support.local_launcher import LocalLauncher
from toolkit import acceptance
from toolkit.cli import main
from validation.measures.fabric import plan as fabric_plan


def launcher(site: str) -> LocalLauncher:
    refused = [name for name in os.environ.get("REFUSE", "").split(",") if name]
    return LocalLauncher(dict.fromkeys(refused, "does not answer; is it up?"))


acceptance.make_launcher = launcher
fabric_plan.BANDWIDTH_SECONDS = int(os.environ.get("SECONDS_BANDWIDTH", "2"))
fabric_plan.BANDWIDTH_PORT = int(os.environ.get("PORT_BANDWIDTH", "15401"))
fabric_plan.LATENCY_PORT = fabric_plan.BANDWIDTH_PORT + 1

if __name__ == "__main__":
    sys.argv[0] = "toolkit"
    main()
