"""All emulated BMCs of a lab, in one process: `python -m toolkit.lab.bmc.serve NETNS FOLDER`, inside that namespace.

Each file NODE.json of the folder is a BMC; it is read again when it changes, and a BMC whose file is gone stops.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.lab.bmc.emulated import EmulatedBmc
from toolkit.lab.bmc.rack import CERTIFICATE, KEY, LOOK_S, PASSWORD, PORT, USER
from toolkit.lab.bmc.settings import Settings
from toolkit.lab.lab import load
from toolkit.lab.network import MANAGEMENT
from toolkit.lab.nodes import start_mark
from toolkit.lab.power import Switch


@dataclass
class Standing:
    """A BMC that listens, the time of its file, and the documents that come after it was read once."""

    bmc: EmulatedBmc
    written_ns: int
    later: dict[str, Any] = field(default_factory=dict)

    def look(self) -> None:
        """Documents that come later are in force once a session that read the BMC has ended."""
        ended = any(line.startswith("DELETE ") for line in self.bmc.requests)
        self.bmc.requests.clear()  # a lab stays up for days
        if ended and self.later:
            self.bmc.docs = {**self.bmc.docs, **self.later}
            self.later = {}


def renew(folder: Path, standing: dict[str, Standing], where: str | None = MANAGEMENT, port: int = PORT) -> None:
    """Start, change and stop BMCs as the files of the folder are. where: the interface that gets their addresses."""
    files = {path.stem: path for path in folder.glob("*.json")}
    for name in standing.keys() - files.keys():
        standing.pop(name).bmc.close()
    for name, path in files.items():
        written = path.stat().st_mtime_ns
        one = standing.get(name)
        if one is not None and one.written_ns == written:
            one.look()
            continue
        told = json.loads(path.read_text())
        if one is None:
            if where is not None:
                subprocess.run(["ip", "addr", "replace", f"{told['address']}/32", "dev", where], check=True)
            password = (folder / PASSWORD).read_text()
            settings = Settings(partial(start_mark, told["lab"], name)) if told["lab"] else None
            power = Switch(load(told["power"]), load(told["power"]).node(name)) if where is not None else None
            bmc = EmulatedBmc(told["docs"], USER, password, folder / CERTIFICATE, folder / KEY, address=told["address"],
                              port=port, settings=settings, power=power)  # fmt: skip
            standing[name] = Standing(bmc, written, told["later"])
        else:
            one.bmc.requests.clear()
            one.bmc.docs, one.later, one.written_ns = told["docs"], told["later"], written


def main(folder: Path) -> None:
    """Serve until this process is ended."""
    standing: dict[str, Standing] = {}
    while True:
        renew(folder, standing)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(Path(sys.argv[2]))
