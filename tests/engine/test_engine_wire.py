"""The wires of engine/ are frozen: each version of one has a record, and what the sources say and send is that record.

Who changes a wire raises its version, and `python -m tests.support.engine_record` writes the new record beside the old.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import pytest

from tests.support.engine_record import VERBS, WIRE, WIRES, layout, observed, record_of
from toolkit.engine import build, host_modules

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
CHANGED = "the wire has changed and its version has not: raise it, then run python -m tests.support.engine_record"


@functools.cache
def unchanged(source: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        return layout(source, Path(scratch))


@pytest.mark.parametrize("wire", WIRES)
def test_a_wire_is_as_recorded_for_its_version(wire: str, tmp_path: Path) -> None:
    path = record_of(wire)
    assert path.is_file(), f"{path} is missing: run python -m tests.support.engine_record"
    assert observed(wire, tmp_path) == json.loads(path.read_text()), f"{path}: {CHANGED}"


def test_every_request_is_in_the_recorded_session() -> None:
    """But the one that takes a connection to verbs, whose payload is among the structures."""
    record = json.loads(record_of("reference/wire").read_text())
    sent = {line.split()[0] for line in record["session"]}
    assert {name for name in record["layout"] if name.startswith("OP_")} - sent == {"OP_VERBS"}
    assert "sizeof(struct verbs_end)" in record["verbs"]


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        (WIRE, "    OP_FREE, /*", "    OP_NEW,\n    OP_FREE, /*"),
        (WIRE, "    OP_ALLOC, /* bytes -> pointer */\n    OP_FREE,", "    OP_FREE,\n    OP_ALLOC,"),
        (WIRE, "    OP_LANES, /*", "    OP_LANES, OP_MORE, /*"),
        (WIRE, "    uint32_t op, flags, seq, unused;", "    uint32_t flags, op, seq, unused;"),
        (WIRE, "    uint64_t arg[6];", "    uint64_t arg[6];\n    uint32_t more;"),
        (WIRE, "    int32_t status;\n", "    uint32_t status;\n"),
        (WIRE, "#define MOST_LANES 4", "#define MOST_LANES 8"),
        (WIRE, '#define WIRE_MAGIC "EAIREF1\\n"', '#define WIRE_MAGIC "EAIREF2\\n"'),
        (WIRE, "FLAG_STRIPED = 4 }", "FLAG_STRIPED = 4, FLAG_NEW = 8 }"),
        (VERBS, "    uint32_t mtu;", "    uint64_t mtu;"),
        (
            WIRES["devices/host_module"][0],
            "    uint32_t param_count, param_bytes;",
            "    uint32_t param_bytes, param_count;",
        ),
        (WIRES["devices/state"][0], "        uint64_t busy_ns, copies;", "        uint64_t copies, busy_ns;"),
        (WIRES["devices/state"][0], "        int32_t objects[COUNTED];", "        int32_t objects[COUNTED + 1];"),
    ],
)
def test_a_changed_number_or_field_is_seen(source: Path, before: str, after: str, tmp_path: Path) -> None:
    text = source.read_text()
    assert text.count(before) == 1
    (tmp_path / "emulated.h").symlink_to(build.SOURCES / "devices/emulated.h")
    changed = tmp_path / source.name
    changed.write_text(text.replace(before, after))
    assert layout(changed, tmp_path) != unchanged(source)
