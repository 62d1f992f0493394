"""The catalogue of criteria: their files beside what is measured, held against what this release can judge and measure.

The files of this release are `measures/FAMILY/NN-NAME.yml`: criteria stand in the order of these names.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pydantic import Field

from validation.base.errors import FormError
from validation.judging.methods import METHODS
from validation.kinds import KINDS
from validation.model import Model
from validation.model.load import ConfigError, Source, line_of, load_yaml, read_source
from validation.rules.criterion import Criterion
from validation.rules.reference import Reference, packaged
from validation.rules.since import BaselineOf


class CriteriaFile(Model):
    """A file of criteria. `baseline`: of which runs they were made, where they are what those reached."""

    baseline: BaselineOf | None = None
    criteria: tuple[Criterion, ...] = Field(min_length=1)


MEASURES = Path(str(resources.files("validation.measures")))


def packaged_files() -> list[Path]:
    """The criteria files of this release, in the order of their names."""
    return sorted(MEASURES.glob("*/[0-9][0-9]-*.yml"), key=lambda path: path.name)


def criteria_files(folder: Path) -> list[Path]:
    """The criteria files of a folder, in the order of their names. Hidden files are none: no manifest has them."""
    return sorted(path for path in folder.glob("*.yml") if not path.name.startswith("."))


def read_criteria(folder: Path | None = None) -> tuple[Source, ...]:
    """The criteria files of a folder (None = the packaged ones), in the order of their names."""
    return tuple(read_source(path) for path in (packaged_files() if folder is None else criteria_files(folder)))


def load_criteria(
    source: Path | Sequence[Source] | None = None, reference: Reference | None = None
) -> tuple[Criterion, ...]:
    """All criteria of a folder (None = the packaged ones), or of files that were read, in the order of their names.

    `reference`: the claims that bounds point to (None = the packaged ones). ConfigError with file and line for a
    malformed file, for an id that stands twice, for a claim, method or kind of measurement that this release does not
    have, and where there are no criteria.
    """
    claims = packaged() if reference is None else reference
    files = read_criteria(source) if source is None or isinstance(source, Path) else source
    seen: dict[str, Path] = {}
    criteria: list[Criterion] = []
    for file in files:
        for position, criterion in enumerate(load_yaml(file, CriteriaFile, claims).criteria):
            if criterion.id in seen:
                raise ConfigError(f"{file.path}:1: {criterion.id} is in {seen[criterion.id].name} too; remove one")
            for key, name, known in (("method", criterion.method, METHODS), ("kind", criterion.kind, KINDS)):
                if name is not None and name not in known:
                    line = line_of(file, "criteria", position, key)
                    raise FormError(f"{file.path}:{line}: {key}: there is no {name!r}; there are: {', '.join(known)}")
            seen[criterion.id] = file.path
            criteria.append(criterion)
    if not criteria:
        where = source if isinstance(source, Path) else MEASURES
        raise ConfigError(f"{where}: no criteria files (*.yml) here; nothing could be judged")
    return tuple(criteria)
