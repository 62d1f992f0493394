"""One process of tf_cnn_benchmarks: says where it runs, takes this node's port of the fabric, and becomes the program.

One line on the standard output: MARK and JSON with rank, world (of the launcher) and host.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

MARK = "tf-rank: "
PR_SET_PDEATHSIG = 1


def main() -> None:
    """One rank."""
    from validation.probes.train_world import take_device

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit-s", type=int, required=True)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--ends", default="")
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    # It must not outlive its job, and what it becomes keeps both.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.alarm(args.time_limit_s)
    if args.ends:
        take_device(args.transport, args.ends)
    rank, world = (int(os.environ.get(f"OMPI_COMM_WORLD_{name}", other)) for name, other in (("RANK", 0), ("SIZE", 1)))
    print(MARK + json.dumps({"rank": rank, "world": world, "host": socket.gethostname()}), flush=True)
    os.execvp(args.program[0], args.program)


if __name__ == "__main__":
    main()
