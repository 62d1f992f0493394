"""From the text of a switch to what it is configured for."""

from __future__ import annotations

from pathlib import Path

from toolkit.switches import lines, os10, sonic
from toolkit.switches.config import Switch
from toolkit.switches.keys import TABLES
from toolkit.switches.lines import SwitchFault

LIMIT_BYTES = 16 << 20


def read_text(text: str, source: str, name: str) -> Switch:
    """A configuration; SwitchFault for one of another system, cut, or with values that cannot be.

    name: the switch's, where the configuration does not have one (hostname).
    """
    system = lines.system_of(text, source)
    blocks = lines.read(text, source)
    lines.understand(blocks, TABLES[system])
    lines.once(blocks)
    hostname = next((line.values[0] for line in blocks if line.form == "hostname {name}"), name)
    return Switch(hostname, system, source, (sonic if system == "sonic" else os10).ports(blocks))


def read_file(file: Path) -> Switch:
    """The configuration in a file, whose name without its ending is the switch's where it has no hostname."""
    try:
        if file.stat().st_size > LIMIT_BYTES:
            raise SwitchFault(f"{file}: is larger than {LIMIT_BYTES >> 20} MiB, which no running configuration is")
        text = file.read_text(encoding="utf-8")
    except OSError as fault:
        raise SwitchFault(f"{file}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise SwitchFault(f"{file}: is not text; collect it with: show running-configuration") from None
    return read_text(text, str(file), file.stem)
