"""The same of what the servers' BMCs say."""

from __future__ import annotations

from tests.support.alert_cases import Case, inside, steady

PART = "elastic_ai_bmc_part_healthy"
SUPPLY = {"node": "gpu1", "kind": "psu", "slot": "PSU.Slot.2"}
FAN = {"node": "gpu1", "kind": "fan", "slot": "Fan1"}
INLET = {"node": "gpu1", "sensor": "Inlet"}
TEMPERATURE, CRITICAL = (f"elastic_ai_bmc_temperature_{name}celsius" for name in ("", "critical_"))


def of_server(alert: str, metric: str, at: int, summary: str) -> Case:
    """An alert on a figure of a server that is 1 where all is well."""
    name = metric + '{node="gpu1"}'
    return Case(alert, {name: steady(0)}, {name: steady(1)}, at, {"node": "gpu1"}, summary)


BMC = [
    Case(
        "PowerSupplyFailed",
        {PART + inside(SUPPLY): steady(0)},
        {PART + inside(SUPPLY): steady(1), PART + inside(FAN): steady(0)},
        1,
        SUPPLY,
        "Power supply PSU.Slot.2 of gpu1 has failed or has no input; look at its cable, the PDU and the server's event "
        "log",
    ),
    of_server(
        "PowerNotRedundant",
        "elastic_ai_bmc_redundant",
        1,
        "The power supplies of gpu1 are not redundant: the next that fails ends its work",
    ),
    Case(
        "FanFailed",
        {PART + inside(FAN): steady(0)},
        {PART + inside(FAN): steady(1), PART + inside(SUPPLY): steady(0)},
        1,
        FAN,
        "Fan1 of gpu1 has failed; the server gets hot and lowers its clocks",
    ),
    Case(
        "BmcHot",
        {TEMPERATURE + inside(INLET): steady(47), CRITICAL + inside(INLET): steady(47)},
        {TEMPERATURE + inside(INLET): steady(46), CRITICAL + inside(INLET): steady(47)},
        1,
        INLET,
        "Inlet of gpu1 has 47 degrees Celsius, which its maker calls critical; look at air flow and cooling",
    ),
    of_server(
        "ServerUnhealthy",
        "elastic_ai_bmc_healthy",
        1,
        "The BMC of gpu1 says that a part of it is not well; its event log names the part",
    ),
    of_server(
        "BmcSilent",
        "elastic_ai_bmc_up",
        15,
        "The BMC of gpu1 cannot be read; journalctl -u elastic-ai-bmc-metrics on the head says why",
    ),
]
