"""Recovery of a node. `what` reboots: it is rebooted k times and read after each; cycles: likewise, its power
switched by its BMC (validation/probes/recovery_power.py); dead: it dies while a job runs;
head: it is the head, and Slurm is asked afterwards (validation/probes/recovery_head.py).

Runs beside the inventory, not on the node, which goes away. stdout = JSON. Reboots: `before`, and of each boot
`ready_s` and what was read. Dead: `dead_at`, `alive_at` and `states`, each a moment with Slurm's words on node
and job; moments in seconds from the begin. Reboots are systemd's (`systemctl reboot`, as role reboot's). A node dies by
taking all of its network ports down, and boots again SILENT_S later, without an orderly stop of anything.
"""

from __future__ import annotations

import json
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.recovery_head import restarted
from validation.probes.recovery_power import cycles
from validation.probes.recovery_steps import Asked, Failed, dead, reboots
from validation.probes.tool import Ran, document

__all__ = ["Asked", "probe"]
_DO = {"reboots": reboots, "cycles": cycles, "dead": dead, "head": restarted}


def probe(asked: Asked) -> ProbeDoc:
    """Do what was asked, with consent that the plan holds."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        command = ["recovery", asked.what, asked.node]
        try:
            found = _DO[asked.what](asked)
        except Failed as fault:
            return Ran(command, 0, "", ""), {}, str(fault)
        return Ran(command, 0, json.dumps(found), ""), {}, None

    return document("recovery", "systemd and Slurm", measure, lambda ran: "")
