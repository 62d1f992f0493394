"""`python -m validation.probes NAME [options]`: run one probe and print its document as one line of JSON.

By hand on a node:

    python -m validation.probes facts --interface fab0
    python -m validation.probes path-mtu --source 10.0.0.1 --destination 10.0.0.2 --mtu 9000

The controller adds --controlled (it holds stdin, and its end of file stops everything) and, where two ends must start
together, --hold-s.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import sys
from pathlib import Path

from validation.probes.supervise import supervise
from validation.probes.tool import on_term_stop_the_tool

PROBES = {
    "facts": "facts",
    "ib-fabric": "ib_fabric",
    "path-mtu": "path_mtu",
    "rdma-bandwidth": "rdma_perftest",
    "rdma-first-light": "rdma_first_light",
    "rdma-latency": "rdma_perftest",
    "rdma-ports": "rdma_ports",
    "rdma-ucx": "rdma_ucx",
    "serve": "serve",
    "tcp-bandwidth": "tcp_bandwidth",
    "tcp-latency": "tcp_latency",
    "training-short": "training_short",
}
ANCHOR = "anchor"


def digest() -> str:
    """SHA-256 over the probes' own sources: tells whether a node carries the probes that the controller expects."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def anchor() -> int:
    """Say which probes are here, then wait for the controller to go: the session that the others share."""
    print(json.dumps({"ready": True, "probes_sha256": digest(), "python": sys.version.split()[0]}), flush=True)
    while os.read(0, 4096):
        pass
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; only the asked probe's module is imported, for a probe should start fast."""
    parser = argparse.ArgumentParser(prog="python -m validation.probes", description="Run one acceptance probe.")
    parser.add_argument("--controlled", action="store_true", help="stop when stdin ends: the controller holds it")
    parser.add_argument("--hold-s", type=float, default=0.0, help="wait that long for a line on stdin before starting")
    parser.add_argument("--deadline-s", type=float, default=600.0, help="kill everything after that time")
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    wanted = [name for name in PROBES if name in argv]
    for name in wanted or PROBES:
        module = importlib.import_module(f"validation.probes.{PROBES[name]}")
        module.add_arguments(names.add_parser(name, description=module.__doc__))
        names.choices[name].set_defaults(probe=module.probe)
    if not wanted:
        names.add_parser(ANCHOR, description=anchor.__doc__)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the probe under the supervisor; the exit status is 0 when its document says so."""
    args = parse(argv)
    if args.name == ANCHOR:
        return anchor()

    def work() -> int:
        on_term_stop_the_tool()
        doc = args.probe(args)
        print(json.dumps(doc), flush=True)
        return 1 if doc["error"] else 0

    return supervise(work, args.deadline_s, args.controlled, args.hold_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
