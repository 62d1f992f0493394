#!/usr/bin/python3
"""What the servers' BMCs say for Prometheus: power supplies, fans, temperatures, health; as node-exporter serves it.

    bmc_metrics.py --output FILE.prom [--interval S] [--once]

Runs on the head, as root: the file with addresses and the read-only account is root's alone. Needs validation/ beside
it: BMCs are read as the acceptance reads them, by GET alone. A BMC that refuses the login is not asked again before
this program starts anew, for that could lock the account.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from textfile import run_command

from validation.probes.redfish import BMCS_AT_ONCE, Denied, Refused, Session, Target
from validation.probes.redfish_read import Reading

SETTINGS = Path(os.environ.get("ELASTIC_AI_BMC_SETTINGS", "/etc/elastic-ai/monitoring/bmc.json"))
DEADLINE_S = 60.0  # of one BMC; iDRAC 9 takes up to 10 s for its first answer
MOST_SENSORS = 200  # of one server
MOST_NAME = 80
HELP = {
    "elastic_ai_bmc_up": "1 where a server's BMC answers as it is to, 0 where it does not.",
    "elastic_ai_bmc_healthy": "1 where the server is well by its BMC, all parts together, 0 where it is not.",
    "elastic_ai_bmc_part_healthy": "1 where a power supply or fan is well by the BMC, 0 where it is not.",
    "elastic_ai_bmc_redundant": "1 where the power supplies are redundant by the BMC, 0 where they are not.",
    "elastic_ai_bmc_power_watts": "What the whole server draws by its BMC.",
    "elastic_ai_bmc_fan_rpm": "How often a fan turns a minute by the BMC.",
    "elastic_ai_bmc_fan_ratio": "How fast a fan turns by the BMC, as a share of what it can.",
    "elastic_ai_bmc_temperature_celsius": "Temperatures of the server by its BMC.",
    "elastic_ai_bmc_temperature_critical_celsius": "From which temperature on the server's maker calls it critical.",
}


def samples_of(node, found):
    """Samples of what one BMC says; what it does not say has none."""
    power, of_node = found["power"], {"node": node}
    samples = {("elastic_ai_bmc_up", node): (of_node, 1)}
    for metric, said in (("healthy", found["health"]), ("redundant", power["redundancy_health"])):
        if said is not None:
            samples[f"elastic_ai_bmc_{metric}", node] = (of_node, int(said == "OK"))
    if power["draw_w"] is not None:
        samples["elastic_ai_bmc_power_watts", node] = (of_node, power["draw_w"])
    for one in found["fans"][:MOST_SENSORS]:
        labels = {**of_node, "fan": one["name"][:MOST_NAME]}
        samples[f"elastic_ai_bmc_fan_{one['kind']}", labels["fan"]] = (labels, one["value"])
    for part in power["parts"][:MOST_SENSORS]:
        if part["health"] is not None:
            labels = {**of_node, "kind": part["kind"], "slot": part["slot"][:MOST_NAME]}
            samples["elastic_ai_bmc_part_healthy", labels["kind"], labels["slot"]] = (
                labels,
                int(part["health"] == "OK"),
            )
    for one in found["temperatures"][:MOST_SENSORS]:
        labels = {**of_node, "sensor": one["name"][:MOST_NAME]}
        for metric, value in (("temperature", one["value"]), ("temperature_critical", one["critical"])):
            if value is not None:
                samples[f"elastic_ai_bmc_{metric}_celsius", labels["sensor"]] = (labels, value)
    return [(key[0], labels, value) for key, (labels, value) in samples.items()]


class Bmcs:
    """All of them, again and again."""

    def __init__(self, path=SETTINGS, deadline_s=DEADLINE_S):
        """Nothing is asked yet."""
        self.path, self.deadline_s, self.denied = path, deadline_s, {}

    def one(self, told):
        """(samples, what went wrong or None) of one BMC."""
        node, down = told["node"], [("elastic_ai_bmc_up", {"node": told["node"]}, 0)]
        if node in self.denied:
            return down, self.denied[node]
        try:
            given = {name: told[name] for name in ("address", "port", "user", "password", "ca", "fingerprint")}
            with Session(Target(**given), self.deadline_s) as session:
                found = Reading(session).figures()
            missing = [f"{one['what']}: {one['why']}" for one in found["missing"][:3]]
            return samples_of(node, found), f"{node}: {'; '.join(missing)}" if missing else None
        except Refused as fault:
            words = f"{node}: {fault}"
            if isinstance(fault, Denied):
                self.denied[node] = f"{words}; not asked again before this service starts anew"
            return down, words
        except Exception as fault:  # an answer that nobody thought of costs this BMC alone
            return down, f"{node}: its answers could not be read ({type(fault).__name__})"

    def __call__(self):
        """(samples, what went wrong or None)."""
        told = json.loads(self.path.read_text(encoding="utf-8"))["bmcs"]
        with ThreadPoolExecutor(max(1, min(BMCS_AT_ONCE, len(told)))) as pool:
            found = list(pool.map(self.one, told))
        faults = [fault for _, fault in found if fault]
        return [sample for samples, _ in found for sample in samples], "\n".join(faults) or None


if __name__ == "__main__":
    raise SystemExit(run_command(__doc__, HELP, Bmcs()))
