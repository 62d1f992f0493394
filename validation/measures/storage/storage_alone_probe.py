"""What this node reads from and writes to one storage by itself: fio past the cache, many small files, pictures.

`stdout`: JSON with `place` (file system, mount options, room), `ops` (of each of storage_fio.OPS fio's own JSON and the
bytes a second of each interval), `files` (count and seconds of each phase), `pictures`
(as the training's loader reads them), `gds` (storage_gds.py), `refused` and `silent` where something was
not measured. Nothing is left in the storage however the probe ends; what a killed one left, the next one removes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, storage_files, storage_fio, storage_gds, storage_pictures
from validation.probes.storage_fio import Load
from validation.probes.storage_place import Own, clear, looked_at, room
from validation.probes.storage_watch import Say, Tell, watched
from validation.probes.tool import Ran, document, run_tool


@dataclass
class Asked:
    """What is asked of this probe."""

    name: str  # of the storage
    path: str
    node: str
    token: str  # of the measurement: names the folder
    ops: list[str]
    size_mib: int  # to be written by each node
    streams: int
    seconds: int
    ramp_s: int
    files: int
    answer_s: float = 10.0  # how long the path may take to answer
    filesystem: str = ""
    gds: bool = False  # also between the storage and a GPU's memory


PICTURES_S = 120.0
FILES_S = 4 * storage_files.PHASE_S + 20


def ready(args: Asked, say: Say, tell: Tell, nodes: int = 1) -> Load:
    """The folder looked at, what was left there removed, and the load that is wanted; Refused as looked_at, room."""
    place = looked_at(args.path, args.filesystem or None)
    size = args.size_mib << 20
    say("what an earlier run left", 60.0)
    left = clear(args.path)
    say("how much room there is", args.answer_s)
    place.update(room(args.path, size * nodes, (args.files + args.streams) * nodes))
    tell(place=place, cleared=left)
    return Load(args.streams, size // args.streams, args.seconds, args.ramp_s)


def measure_ops(
    args: Asked, load: Load, own: Own, say: Say, tell: Tell, before: Callable[[str], dict[str, Any]]
) -> Load | None:
    """Files laid out, then each operation; the load of the files, None where there are none.

    `before`: what happens before each, and what of it is told with it.
    """
    by = storage_fio.engine()
    say("writing the files", storage_fio.LAYOUT_S + storage_fio.OVER_S + 10)
    load, laid = storage_fio.lay_out(load, own.folder, by)
    tell(layout=laid, engine=by)
    ops: dict[str, Any] = {}
    for name in args.ops if not laid["error"] else ():
        more = before(name)
        say(name, load.seconds + load.ramp_s + storage_fio.OVER_S + 10)
        ops[name] = {**storage_fio.measure(name, load, own.folder, by), **more}
        tell(ops=ops)
    return None if laid["error"] else load


def report(kind: str, args: Asked, found: dict[str, Any]) -> tuple[Ran, dict[str, Any], str | None]:
    """What was found as a probe's document; an error where nothing at all was measured."""
    version = run_tool(["fio", "--version"], 10)
    if version.returncode == 127:
        found = {"refused": version.stderr}
    measured = [name for name, one in found.get("ops", {}).items() if not one["error"]]
    text = json.dumps({"name": args.name, "node": args.node, "path": args.path, **found})
    ran = Ran(["fio", kind, args.path], 0, text, "")
    why = found.get("refused") or found.get("silent") or found.get("layout", {}).get("error")
    facts = {"ops": len(measured), "fio": version.stdout.strip()}
    return ran, facts, why if not measured and not found.get("files") and kind == "storage-alone" else None


def probe(args: Asked) -> ProbeDoc:
    """Measure this node alone."""

    def work(say: Say, tell: Tell) -> None:
        load = ready(args, say, tell)
        with Own(args.path, args.token, args.node) as own:
            measure_ops(args, load, own, say, tell, lambda name: {})
            say("many small files", FILES_S)
            tell(files=storage_files.measure(own.folder, args.files))
            say("pictures as the training reads them", PICTURES_S)
            tell(pictures=storage_pictures.measure(own.folder))
            if args.gds:
                for path in own.folder.glob("data.*"):  # as much room as was looked for
                    path.unlink()
                say("GPUDirect Storage", 2 * (args.seconds + storage_gds.OVER_S) + 30)
                tell(gds=storage_gds.measure(own.folder, args.streams, load.file_bytes, args.seconds))
            say("removing what was written", 120.0)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        return report("storage-alone", args, watched(args.path, work, args.answer_s))

    return document("storage-alone", "fio", measure, lambda ran: "")
