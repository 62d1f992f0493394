"""On a GPU server: reads which shares are given out, twice a second, until the file STOP is there.

Prints JSON: the most shards that any GPU ever had at once, and how many instances were seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path


def main() -> None:
    """Watch."""
    stop, most, seen = Path(sys.argv[1]), 0, set()
    while not stop.exists():
        shares: Counter[str] = Counter()
        for path in Path("/run/elastic-ai/leases").glob("*/instance.json"):
            try:
                instance = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            seen.add(path.parent.name)
            for device in instance["devices"]:
                shares[device["uuid"]] += device["shards"]
        most = max([most, *shares.values()])
        time.sleep(0.5)
    print(json.dumps({"most": most, "instances": len(seen)}))


if __name__ == "__main__":
    main()
