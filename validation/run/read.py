"""A run is read here: `read(folder)` gives a `Run`: its documents, its results, and `data`, of which it is judged.

Each is read once, when it is first asked for. Who judges on the machine that stores a run may ask for notes and
evidence `again`: what this user's toolkit read before, and what did not change since, is not read once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from validation.base import bounded
from validation.base.errors import FormError
from validation.judging.accepted import AcceptedRates
from validation.judging.run_data import Evidence, RunData
from validation.model import Plan, Result, RunInfo, Topology, VerdictDoc
from validation.model.base import lighten
from validation.model.built import HowBuilt
from validation.model.load import (
    ConfigError,
    Source,
    known_results,
    load_json,
    parse_results,
    read_source,
    results_text,
)
from validation.model.sample_columns import Columns
from validation.plan.suites import SUITES
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric, load_fabric
from validation.rules.profile import Profile, load_profile
from validation.rules.punch import Point, load_points
from validation.rules.reference import Reference, load_reference, reference_files
from validation.rules.release import release
from validation.rules.waiver import Waiver, load_waivers
from validation.run import remembered
from validation.run.catalogue import criteria_files, load_criteria
from validation.run.conflicts import conflicts, remarks
from validation.run.log_state import State, look
from validation.run.names import (
    ACCEPTED,
    BUILT,
    CRITERIA,
    FABRIC,
    PLAN,
    PROFILE,
    PUNCH,
    REFERENCE,
    RESULTS,
    RUN,
    TIED,
    TOPOLOGY,
    VERDICT,
    WAIVERS,
)
from validation.run.raw_logs import read_logs
from validation.run.remembered import Known, Lines, LogsRead, columns_of, digest, is_kept, recall, remember, toolkit

_VERSION = 40  # characters of one in an error


class Run:
    """A run directory. Every attribute raises ConfigError, one line with file and line, where its file is damaged."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the run directory; nothing is read yet."""
        self.folder = folder
        self._taken = False
        self._agree = False
        self._known = False
        """Whether its documents are, byte for byte, those that were read and found to agree before."""
        self._read: dict[str, Source] = {}
        self._sha256: dict[str, str] = {}

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """A document that does not fit is told with the release that wrote it, where that is not this one."""
        try:
            yield
        except FormError as fault:
            words = self._writer()
            if not words or fault.release_told:  # of a document that was read for another
                raise
            told = FormError(f"{fault}{words}")
            told.release_told = True
            raise told from None

    def _writer(self) -> str:
        """Words on the release of run.json, which may not fit itself; none where that is this one."""
        try:
            version = json.loads(bounded.read_file(self.folder / RUN))["toolkit_version"]
        except (bounded.TooMuch, OSError, ValueError, KeyError, TypeError, RecursionError):
            return ""
        if not isinstance(version, str) or version == release() or not version.isprintable():
            return ""
        return f"; toolkit {version[:_VERSION]} made this run, this is {release()}: use that release for it"

    def source(self, name: str) -> Source:
        """A document by its name in the run, as its text."""
        if name not in self._read:
            self._read[name] = read_source(self.folder / name)
        return self._read[name]

    @cached_property
    def info(self) -> RunInfo:
        """run.json."""
        with self._told():
            return load_json(self.source(RUN), RunInfo)

    @cached_property
    def topology(self) -> Topology:
        """topology.json."""
        with self._told():
            return load_json(self.source(TOPOLOGY), Topology, self._known)

    @cached_property
    def plan(self) -> Plan:
        """plan.json. Its text is not kept: a fleet's is as large as all else that is known of the run."""
        source = self.source(PLAN)
        with self._told():
            plan = load_json(source, Plan, self._known)
        for m in plan.measurements:
            lighten((m, *m.endpoints))
        self._sha256[PLAN] = source.sha256
        del self._read[PLAN]
        return plan

    @cached_property
    def built(self) -> HowBuilt | None:
        """built.json; None where the run has none."""
        with self._told():
            return load_json(self.source(BUILT), HowBuilt) if (self.folder / BUILT).exists() else None

    @cached_property
    def accepted(self) -> AcceptedRates | None:
        """accepted.json; None where the run has none."""
        with self._told():
            return load_json(self.source(ACCEPTED), AcceptedRates) if (self.folder / ACCEPTED).exists() else None

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric profile that is copied into the run."""
        with self._told():
            return load_fabric(self.source(FABRIC))

    @cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """The criteria that are copied into the run."""
        names = [path.name for path in criteria_files(self.folder / CRITERIA)]
        if not names:
            raise ConfigError(f"{self.folder / CRITERIA}: no criteria files (*.yml) here; nothing could be judged")
        with self._told():
            return load_criteria([self.source(f"{CRITERIA}/{name}") for name in names], self.reference)

    @cached_property
    def reference(self) -> Reference:
        """The claims that are copied into the run."""
        names = [path.name for path in reference_files(self.folder / REFERENCE)]
        if not names:
            raise ConfigError(f"{self.folder / REFERENCE}: no files of claims (*.yml) here; restore them from a copy")
        with self._told():
            return load_reference([self.source(f"{REFERENCE}/{name}") for name in names])

    @cached_property
    def verdict(self) -> VerdictDoc:
        """verdict.json, which nothing that judges the run reads."""
        with self._told():
            return load_json(self.folder / VERDICT, VerdictDoc)

    @cached_property
    def _recorded(self) -> tuple[list[Result], str | None]:
        with self._told():
            return parse_results(self.folder / RESULTS, self.text, self.info.run)

    @cached_property
    def text(self) -> bytes:
        """results.jsonl as it stands."""
        return results_text(self.folder / RESULTS)

    def take_verdict(self, verdict: VerdictDoc) -> None:
        """Have `verdict` stand for verdict.json, which was just made of it."""
        self.__dict__["verdict"] = verdict

    @property
    def results(self) -> list[Result]:
        """All lines of results.jsonl that are whole."""
        return self._recorded[0]

    @property
    def whole_results(self) -> Sequence[Result]:
        """The same, each with all that its line says: for those who write it down."""
        return known_results(self.text) if self._taken else self.results

    @property
    def torn(self) -> str | None:
        """Words about a torn last line of results.jsonl; None where there is none."""
        return self._recorded[1]

    @cached_property
    def profile(self) -> Profile | None:
        """The acceptance profile of the run; None where it has none."""
        return self.profile_for(self.criteria)

    @cached_property
    def waivers(self) -> tuple[Waiver, ...]:
        """The waivers of the run; none where it has no waivers.yml."""
        return self.waivers_for(self.criteria)

    def profile_for(self, criteria: Sequence[Criterion]) -> Profile | None:
        """Its acceptance profile as it fits these criteria; ConfigError where it is not the one of run.json."""
        path, named = self.folder / PROFILE, self.info.profile
        if not path.exists():
            if named is None:
                return None
            raise ConfigError(
                f"{path}: is missing, although run.json names profile {named!r}; restore it from a copy of the run"
            )
        profile = load_profile(self.source(PROFILE), criteria, SUITES)
        if profile.name != named:
            raise ConfigError(
                f"{path}: name: is {profile.name!r}, but run.json says {named!r}; restore it from a copy of the run"
            )
        return profile

    def waivers_for(self, criteria: Sequence[Criterion]) -> tuple[Waiver, ...]:
        """Its waivers as they fit these criteria."""
        if not (self.folder / WAIVERS).exists():
            return ()
        return load_waivers(self.source(WAIVERS), [c.id for c in criteria])

    def points_for(self, criteria: Sequence[Criterion]) -> tuple[Point, ...]:
        """The points of its punch list as they fit these criteria; none where it has no punch.yml."""
        if not (self.folder / PUNCH).exists():
            return ()
        return load_points(self.source(PUNCH), [c.id for c in criteria])

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Name -> SHA-256 of the documents that decide what is measured and how it is judged."""
        names = [name for name in TIED if (self.folder / name).is_file()]
        for rules in (CRITERIA, REFERENCE):
            folder = self.folder / rules
            if folder.is_dir():
                names += sorted(f"{rules}/{path.name}" for path in folder.iterdir() if not path.name.startswith("."))
        return {name: self._hash(name) for name in names}

    def _hash(self, name: str) -> str:
        """Of a document as it was read, or, where none asked for it, as it is."""
        if name not in self._sha256:
            read = self._read.get(name)
            self._sha256[name] = _sha256(self.folder / name) if read is None else read.sha256
        return self._sha256[name]

    # --- what follows from all of them ---------------------------------------------------------------------------

    def data(self, again: bool = False) -> RunData:
        """All that its verdict follows from; ConfigError with file and line where a document is damaged, or contradicts
        another. `again`: as of `notes` and `evidence`.
        """
        notes, waivers, profile, evidence = self.notes(again), self.waivers, self.profile, self.evidence(again)
        notes = (*notes, *((self.torn,) if self.torn else ()), *evidence.notes)
        return RunData(
            info=self.info,
            topology=self.topology,
            plan=self.plan,
            fabric=self.fabric,
            criteria=self.criteria,
            results=self.results,
            waivers=waivers,
            points=self.points_for(self.criteria),
            profile=profile,
            evidence=replace(evidence, notes=notes),
            accepted=self.accepted,
        )

    def notes(self, again: bool = False) -> tuple[str, ...]:
        """Notes on its documents; ConfigError with file and line where they contradict each other."""
        if again and self.known is not None and self.known.documents == self._documents:
            self._known = True
        else:
            documents = self.info, self.topology, self.plan, self.fabric, self.criteria, self.hashes
            for conflict in conflicts(*documents, release()):
                raise ConfigError(conflict.told(self.folder))
        self._agree = True
        return tuple(remarks(self.info, release()))

    def evidence(self, again: bool = False) -> Evidence:
        """What its raw logs have against its results. `again`: what is read now is remembered, and `results` may hold
        of each line only what is judged.
        """
        known = self.known if again else None
        state = look(self.folder, known.state if known is not None else None) if again else State()
        if (
            known is not None
            and known.evidence is not None
            and known.columns is not None
            and (state is known.state or known.state.all_same(state, (m.id for m in self.plan.measurements)))
        ):
            if self._agree and (not known.documents or (state is not known.state and state.everything)):
                self._remember(known.columns, state, LogsRead(known.evidence, known.faults, frozenset()))
            # results that were read before stand for those of `text`, of which they are
            self.__dict__["_recorded"] = (known.columns.results(), None)
            self._taken = True
            return known.evidence
        found = read_logs(self.folder, self.info, self.plan, self.results, state, known)
        if again and len(self.results) >= remembered.LEAST and not self.torn:
            self._remember(columns_of(self.results, self.lines), state, found)
        return found.evidence

    def _remember(self, columns: Columns | None, state: State, found: LogsRead) -> None:
        remember(self.folder, self.lines, columns, state, found, self._documents if self._agree else "")

    @cached_property
    def known(self) -> Known | None:
        """What is known of it as its plan and its lines are now. A document that cannot be read is told by whoever
        reads the documents in their order.
        """
        try:
            return recall(self.folder, self.lines) if is_kept(self.folder) else None
        except ConfigError:
            return None

    @cached_property
    def lines(self) -> Lines:
        """Its lines, and what decides beside them and their logs what is wrong with them."""
        identity = digest(toolkit(), self.info.run, self.info.created, self.hashes.get(PLAN, ""))
        return Lines(self.info.run, identity, self.text)

    @cached_property
    def _documents(self) -> str:
        """One hash for its documents and the toolkit that looks at them."""
        hashes = sorted(self.hashes.items())
        return digest(toolkit(), self.source(RUN).sha256, *(f"{name} {value}" for name, value in hashes))


def read(run: Path | Run) -> Run:
    """A run by its directory; one that may have been read in part already as it is."""
    return run if isinstance(run, Run) else Run(run)


def tied(folder: Path) -> dict[str, str]:
    """`Run.hashes` of a run directory as it is now."""
    return read(folder).hashes


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}") from None
