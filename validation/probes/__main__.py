"""`python -m validation.probes NAME [PARAMETERS]`: run one probe and print its document as one line of JSON.

PARAMETERS is one JSON object; its keys are the fields of the probe's `Asked`. By hand on a node:

    python -m validation.probes facts '{"interfaces": ["fab0"]}'
    python -m validation.probes path-mtu '{"source": "10.0.0.1", "destination": "10.0.0.2", "mtu": 9000}'

The probe of a kind of measurement is validation/measures/FAMILY/NAME_probe.py, with _ for -. The controller adds
--controlled (it holds stdin, and its end of file stops everything) and, where two ends must start together, --hold-s.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from validation.nvml import binding
from validation.probes import asked
from validation.probes.affinity import take_all
from validation.probes.supervise import supervise
from validation.probes.tool import on_term_stop_the_tool, search_sbin

ANCHOR = "anchor"


def sources() -> list[Path]:
    """All that runs on nodes: the probes, what they share, and what asks NVML for them, without NVIDIA's file there."""
    here = Path(__file__).resolve().parent
    nvml = [path for path in here.with_name("nvml").glob("*.py") if path.name != binding.FILE]
    measures = here.with_name("measures").glob("*/*_probe.py")
    return [*sorted(here.glob("*.py")), *sorted(measures), *sorted(nvml)]


def digest() -> str:
    """SHA-256 over the sources; it tells whether a node carries the probes that the controller expects."""
    total = hashlib.sha256()
    for path in sources():
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def anchor() -> int:
    """Say which probes are here, then wait for the controller to go: the session that the others share."""
    print(json.dumps({"ready": True, "probes_sha256": digest(), "python": sys.version.split()[0]}), flush=True)
    while os.read(0, 4096):
        pass
    return 0


def find(name: str) -> Any:
    """The module of the probe of that name, which has `Asked` and `probe`; ValueError where there is none.

    No other probe is imported: one should start fast.
    """
    file = f"{name.replace('-', '_')}_probe.py"
    there = sorted(Path(__file__).resolve().parent.with_name("measures").glob(f"*/{file}"))
    known = re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and len(there) == 1
    found = importlib.import_module(f"validation.measures.{there[0].parent.name}.{there[0].stem}") if known else None
    if found is None or not hasattr(found, "Asked"):
        raise ValueError(f"unknown probe {name!r}")
    return found


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; `asked` holds the probe's parameters, `probe` runs it. Usage errors end the program."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.probes",
        description="Run one acceptance probe.",
        epilog="The parameters of a probe are described in validation/measures/FAMILY/NAME_probe.py, class Asked.",
    )
    parser.add_argument("--controlled", action="store_true", help="stop when stdin ends: the controller holds it")
    parser.add_argument("--hold-s", type=float, default=0.0, help="wait that long for a line on stdin before starting")
    parser.add_argument("--deadline-s", type=float, default=600.0, help="kill everything after that time")
    parser.add_argument("name", metavar="NAME", help="kind of measurement, or `serve` for the serving end of one")
    parser.add_argument("parameters", metavar="PARAMETERS", nargs="?", default="{}", help="one JSON object")
    args = parser.parse_args(argv)
    if args.name == ANCHOR:
        return args
    try:
        module = find(args.name)
        args.asked, args.probe = asked.read(module.Asked, args.parameters), module.probe
    except ValueError as fault:
        parser.error(f"{args.name}: {fault}")
    return args


def main(argv: list[str]) -> int:
    """Run the probe under the supervisor; the exit status is 0 when its document says so."""
    args = parse(argv)
    if args.name == ANCHOR:
        return anchor()
    search_sbin()

    def work() -> int:
        on_term_stop_the_tool()
        if args.controlled:
            take_all()
        doc = args.probe(args.asked)
        print(json.dumps(doc), flush=True)
        return 1 if doc["error"] else 0

    return supervise(work, args.deadline_s, args.controlled, args.hold_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
