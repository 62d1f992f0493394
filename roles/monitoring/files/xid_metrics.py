#!/usr/bin/python3
"""Xids of this node's kernel log for Prometheus, by what each means, as a file that node-exporter serves.

    xid_metrics.py --output FILE.prom [--interval S] [--once]

Runs as root, for the kernel's log is closed to others. Needs validation/ beside it: the acceptance judges Xids by the
same table. A container does not see its host's log: then there are no figures but that one.
"""

import sys
from collections import Counter

from textfile import run_command

from validation.measures.gpu.xid_table import meaning
from validation.probes import kernel_log

HELP = {
    "elastic_ai_gpu_xids": "Lines of the kernel log since the node's start, by device, number and meaning.",
    "elastic_ai_kernel_log_read": "1 where the kernel's log can be read, 0 where it cannot.",
}


def reading(path=kernel_log.KMSG):
    """(samples, what went wrong or None)."""
    log = kernel_log.collect(path, journal=False)
    if log["unread"]:
        return [("elastic_ai_kernel_log_read", {}, 0)], log["unread"]
    found = Counter()
    for line in log["lines"]:
        row = meaning(line["kind"], line["code"], line["words"])
        code = "lost" if line["kind"] == "lost" else "?" if line["code"] is None else str(line["code"])
        found[line["address"], f"{'SXid ' if line['kind'] == 'sxid' else ''}{code}", row.meaning] += 1
    samples = [
        ("elastic_ai_gpu_xids", {"address": address, "code": code, "meaning": meant}, count)
        for (address, code, meant), count in sorted(found.items())
    ]
    return [*samples, ("elastic_ai_kernel_log_read", {}, 1)], None


if __name__ == "__main__":
    sys.exit(run_command(__doc__, HELP, reading))
