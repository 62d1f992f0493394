"""NVIDIA DCGM's own diagnostic (`dcgmi diag -j`), where it is installed: what it printed, untouched.

It exits with other than 0 where a test failed: that is a finding and no failure of this probe, as is that DCGM is not
installed, or that its service does not answer. `facts`: level, returncode, said (why there is no report).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, group, last_line, run_tool

NOT_INSTALLED = 127  # as validation.probes.tool says it
REPORT = "test_categories"  # a key of every version's report


@dataclass
class Asked:
    """What is asked of this probe. level: of DCGM's runs, 1 (seconds) to 4 (hours)."""

    level: int = 1
    limit_s: float = 600.0


def probe(args: Asked) -> ProbeDoc:
    """Run it once."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        ran = run_tool(["dcgmi", "diag", "-r", str(args.level), "-j"], timeout_s=args.limit_s)
        facts: dict[str, Any] = {"level": args.level, "returncode": ran.returncode, "said": ""}
        # ended by a signal, as after its time: what it printed until then is no report
        if REPORT in ran.stdout and ran.returncode >= 0:
            return ran._replace(returncode=0), facts, None
        if ran.returncode == NOT_INSTALLED:
            facts["said"] = "dcgmi is not installed on this node"
        elif ran.returncode < 0:
            facts["said"] = f"it came to no end within {args.limit_s:g} s, or was ended by signal {-ran.returncode}"
        else:
            facts["said"] = last_line(ran.stderr) or last_line(ran.stdout) or f"exit status {ran.returncode}, no report"
        return ran._replace(returncode=0, stdout=""), facts, None

    def version(ran: Ran) -> str:
        return group(r'"(?:DCGM )?[Vv]ersion"\s*:\s*"([^"]+)"', ran.stdout)

    return document("dcgm-diag", "DCGM", measure, version)
