"""fio on one storage: files laid out with data, then reads and writes of them past the cache of this node.

Always direct: what goes through memory measures memory (under a limit of 50 MB/s, writes through the cache ran at
5.6 GB/s). Files are written before they are read, for what was only reserved is read without any storage. fio's own
JSON is kept untouched, and from its logs what each stream moved in each half second.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from validation.probes.tool import Ran, run_tool

ENGINE, PLAIN_ENGINE = "libaio", "psync"
INTERVAL_MS = 500
LAYOUT_S = 20  # as many bytes as are written in that time are enough
OVER_S = 30.0  # beyond its time, until fio that does not end is killed
MIB = 1 << 20


class Op(NamedTuple):
    """One of fio's runs. `one`: a single stream over all files; else each stream has its own."""

    rw: str
    block_bytes: int
    depth: int
    one: bool = False


OPS = {
    "write": Op("write", MIB, 4),
    "read": Op("read", MIB, 4),
    "one-write": Op("write", MIB, 4, one=True),
    "one-read": Op("read", MIB, 4, one=True),
    "randwrite": Op("randwrite", 4096, 16),
    "randread": Op("randread", 4096, 16),
}


@dataclass
class Load:
    """How much: files (and streams), bytes of each file, seconds of each run after its ramp."""

    streams: int
    file_bytes: int
    seconds: int
    ramp_s: int


def engine() -> str:
    """The engine that keeps several requests in flight where this fio has it, else one that keeps one."""
    return ENGINE if run_tool(["fio", f"--enghelp={ENGINE}"], 10).returncode == 0 else PLAIN_ENGINE


def _files(load: Load, op: Op, folder: Path) -> list[str]:
    if op.one:
        names = ":".join(f"data.{number}" for number in range(load.streams))
        size = load.file_bytes * load.streams
        return [f"--directory={folder}", f"--filename={names}", "--numjobs=1", f"--size={size}",
                "--file_service_type=sequential"]  # fmt: skip
    return [f"--directory={folder}", "--filename_format=data.$jobnum", f"--numjobs={load.streams}",
            f"--size={load.file_bytes}"]  # fmt: skip


def command(name: str, load: Load, folder: Path, by: str, logs: Path) -> list[str]:
    """The command line of one of OPS."""
    op = OPS[name]
    return [
        "fio", f"--name={name}", "--output-format=json", "--eta=never", *_files(load, op, folder), f"--rw={op.rw}",
        f"--bs={op.block_bytes}", "--direct=1", f"--ioengine={by}", f"--iodepth={op.depth if by == ENGINE else 1}",
        "--time_based=1", f"--runtime={load.seconds}", f"--ramp_time={load.ramp_s}", "--group_reporting=1",
        "--thread=1", "--fallocate=none", "--norandommap", "--randrepeat=0", "--allow_file_create=0",
        f"--write_bw_log={logs}/{name}", f"--log_avg_msec={INTERVAL_MS}",
    ]  # fmt: skip


def layout_command(load: Load, folder: Path, by: str) -> list[str]:
    """Files with data in them, for as long as LAYOUT_S."""
    op = OPS["write"]
    return [
        "fio", "--name=layout", "--output-format=json", "--eta=never", *_files(load, op, folder), "--rw=write",
        f"--bs={op.block_bytes}", "--direct=1", f"--ioengine={by}", f"--iodepth={op.depth if by == ENGINE else 1}",
        f"--runtime={LAYOUT_S}", "--group_reporting=1", "--thread=1", "--fallocate=none",
    ]  # fmt: skip


def said(ran: Ran) -> dict[str, Any] | None:
    """The JSON object that fio printed, after whatever else it printed; None where there is none."""
    try:
        found = json.loads(ran.stdout[ran.stdout.index("{") :])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def wrong(ran: Ran) -> str:
    """What is wrong with a run of fio, in words; "" where nothing is. It exits with 0 after some faults."""
    lines = [line for line in (*ran.stderr.splitlines(), *ran.stdout.splitlines()) if line.startswith("fio:")]
    told = next((line for line in lines if "err" in line or "error" in line), lines[0] if lines else "")
    if ran.returncode:
        return told or ran.failure or "fio failed"
    found = said(ran)
    if found is None:
        return "fio printed no whole report"
    errors = [job.get("error") for job in found.get("jobs", [{}])]
    return told or f"fio reports error {errors[0]}" if any(error != 0 for error in errors) else ""


def lay_out(load: Load, folder: Path, by: str) -> tuple[Load, dict[str, Any]]:
    """Write the files; the load with the bytes that each of them has at least then, and what fio said."""
    ran = run_tool(layout_command(load, folder, by), LAYOUT_S + OVER_S)
    if fault := wrong(ran):
        return load, {"error": fault}
    sizes = [(folder / f"data.{number}").stat().st_size for number in range(load.streams)]
    least = min(sizes) // MIB * MIB
    made = Load(load.streams, least, load.seconds, load.ramp_s)
    if not least:
        return made, {"error": f"less than 1 MiB of a file was written in {LAYOUT_S} s"}
    return made, {"error": "", "file_bytes": least, "bytes": sum(sizes)}


def intervals(logs: Path, name: str, streams: int) -> list[list[int]]:
    """KiB a second of each interval, of each stream; those that all streams have."""
    rows = []
    for number in range(1, streams + 1):
        path = logs / f"{name}_bw.{number}.log"
        lines = path.read_text().splitlines() if path.is_file() else []
        rows.append([int(line.split(",")[1]) for line in lines if line.count(",") >= 2])
    return [row[: min(map(len, rows))] for row in rows]


def measure(name: str, load: Load, folder: Path, by: str) -> dict[str, Any]:
    """One of OPS: fio's own JSON, and bytes a second of each interval; `error` where it failed."""
    with tempfile.TemporaryDirectory(prefix="toolkit-fio-") as logs:
        ran = run_tool(command(name, load, folder, by, Path(logs)), load.seconds + load.ramp_s + OVER_S)
        fault = wrong(ran)
        if fault:
            return {"error": fault}
        rates = intervals(Path(logs), name, 1 if OPS[name].one else load.streams)
    sums = [sum(same) for same in zip(*rates)]  # Python 3.9 has no strict; they are of one length
    return {"error": "", "fio": said(ran), "streams_kib_s": rates, "kib_s": sums, "command": ran.command}
