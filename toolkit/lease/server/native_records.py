"""Which jobs may open GPUs of this server by themselves: one file for each, which root alone writes and reads.

A file that cannot be read lets nobody in (module native), and nothing is given out beside it (module overlap), for it
may be of a job that has a whole GPU.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from toolkit.lease.fields import PATH, DamagedDocument, Fields
from toolkit.lease.instance_record import Uncertain
from toolkit.lease.machine.host import Host


@dataclass(frozen=True)
class NativeRecord:
    """uid: the job's owner. gpus: indices of GPUs that he may open; whole: those that are the job's alone. files: those
    of the MIG instance that he may open."""

    uid: int
    gpus: tuple[int, ...]
    whole: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> NativeRecord:
        """The record in a file; FileNotFoundError where there is none, DamagedDocument where it is damaged."""
        fields = Fields.in_file(path)
        record = cls(
            uid=fields.number("uid", most=0xFFFFFFFE),
            gpus=fields.numbers("gpus", most=1 << 16),
            whole=fields.numbers("whole", most=1 << 16),
            files=fields.texts("files", PATH),
        )
        fields.end()
        return record

    def write(self, path: Path) -> None:
        """Into its file, whole."""
        scratch = path.with_name(f".{path.name}")
        scratch.write_text(json.dumps(asdict(self)))
        scratch.replace(path)


@dataclass(frozen=True)
class NativeRecords:
    """All of this server, by job. lost: those that cannot be read, and why."""

    by_job: Mapping[str, NativeRecord]
    lost: Mapping[str, str]

    def wholes(self) -> dict[int, str]:
        """Jobs that have a whole GPU, by its index. Uncertain where that cannot be told."""
        for job, why in self.lost.items():
            raise Uncertain(f"which GPUs job {job} has cannot be told: {why}; end that job")
        return {index: job for job, record in self.by_job.items() for index in record.whole}

    def had(self, jobs: Collection[str]) -> tuple[set[int], set[int]]:
        """GPUs of these jobs, and their owners."""
        own = [record for job, record in self.by_job.items() if job in jobs]
        return {index for record in own for index in record.gpus}, {record.uid for record in own}


def folder_of(host: Host) -> Path:
    """Where they are."""
    return host.run_dir.with_name("gpu-users")


def paths(host: Host) -> dict[str, Path]:
    """Their files, by job."""
    return {path.name: path for path in folder_of(host).glob("[0-9]*")}


def read_records(host: Host) -> NativeRecords:
    """As they are now."""
    by_job: dict[str, NativeRecord] = {}
    lost: dict[str, str] = {}
    for job, path in paths(host).items():
        try:
            by_job[job] = NativeRecord.read(path)
        except FileNotFoundError:
            continue  # its job has ended meanwhile
        except DamagedDocument as fault:
            lost[job] = str(fault)
    return NativeRecords(by_job, lost)
