"""What is said of a run that another reading of the same parts is compared with: signed on which day, or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from validation.base.visible import visible
from validation.model.load import ConfigError, read_bytes
from validation.signing import SIGNATURES, is_signed
from validation.signing.signatures import MAX_BYTES
from validation.signing.statement import Statement, read_statement


@dataclass(frozen=True)
class Record:
    """A run as a record of parts. `day`: of its last good signature, "" where nobody signed it, or its files are not
    those that were signed; `fault`: why not, in words. `last_day`: until when the paper holds, "" where it names none.
    """

    run: str
    day: str
    fault: str
    last_day: str = ""

    @property
    def words(self) -> str:
        """`in the report signed on 2026-11-27`."""
        return f"in the report signed on {self.day}" if self.day else f"in run {self.run}"


def record_of(run_dir: Path, run: str) -> Record:
    """The run in `run_dir`, whose signatures and hashes are checked. Whose keys signed is toolkit verify's question."""
    if not is_signed(run_dir):
        return Record(run, "", "")
    from validation.signing.verify import hashed_run  # only here: reports are long to load

    found = hashed_run(run_dir)
    good = [one.time for one in found.signatures if one.state != "bad" and one.time]
    if found.intact and good and not any(one.state == "bad" for one in found.signatures):
        return Record(run, max(good)[:10], "", found.last_day or "")
    bad = [f"{one.file}: {one.why}" for one in found.signatures if one.state == "bad"]
    odd = [*found.difference.changed, *found.difference.missing, *found.difference.added]
    why = [f"{', '.join(odd[:3])}: not as signed"] if odd else []
    return Record(run, "", visible("; ".join([*why, *found.faults, *bad][:3])))


def signed_as(run_dir: Path) -> list[Statement]:
    """What its statements say of the run, as far as they can be read; whether they were signed is not checked."""
    found = []
    for path in sorted((run_dir / SIGNATURES).glob("*.txt")):
        try:
            found.append(read_statement(read_bytes(path, MAX_BYTES).decode(), path.name))
        except (ConfigError, UnicodeDecodeError):
            continue  # record_of names it
    return found
