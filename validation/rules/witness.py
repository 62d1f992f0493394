"""Lists of witnessed tests: the one that is built in, and a site's own (`witness.yml` beside the inventory)."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from validation.model import Model
from validation.model.load import ConfigError, Source, line_of, load_yaml, read_source
from validation.model.witness import MOST_TESTS, WitnessTest

FILE = "witness.yml"
BUILT_IN = Path(__file__).resolve().parent.with_name("measures") / "witness/built_in.yml"


class WitnessFile(Model):
    """`tests:` with a list."""

    tests: tuple[WitnessTest, ...] = Field(max_length=MOST_TESTS)


def built_in() -> tuple[WitnessTest, ...]:
    """The list of this release."""
    return load_yaml(BUILT_IN, WitnessFile).tests


def site_tests(folder: Path, nodes: Iterable[str]) -> tuple[WitnessTest, ...]:
    """A site's own, of the file beside its inventory; none where there is no file. ConfigError with file and line."""
    path = folder / FILE
    return load_tests(read_source(path), nodes) if os.path.lexists(path) else ()


def load_tests(source: Source, nodes: Iterable[str]) -> tuple[WitnessTest, ...]:
    """The tests of a file. ConfigError for anything malformed, an id that is taken, an unknown node."""
    tests = load_yaml(source, WitnessFile).tests
    packaged, known = {test.id for test in built_in()}, list(nodes)
    seen: dict[str, int] = {}

    def fault(position: int, key: str, words: str) -> ConfigError:
        line = line_of(source, "tests", position, key)
        return ConfigError(f"{source.path}:{line}: tests.{position}.{key}: {words}")

    for position, test in enumerate(tests):
        if test.id in seen:
            line = line_of(source, "tests", seen[test.id], "id")
            raise fault(position, "id", f"{test.id} is the id of the test in line {line} already; take another")
        if test.id in packaged:
            raise fault(position, "id", f"{test.id} is the id of a test of the built-in list; take another")
        seen[test.id] = position
        if test.node is not None and test.of == "site":
            raise fault(position, "node", "a test of the whole site is of no node; remove this line, or of: site")
        if test.of == "site" and test.loses == "node":
            raise fault(
                position, "loses", "a test of the whole site may lose links, no node; name the node it is about"
            )
        if test.node is not None and test.node not in known:
            near = difflib.get_close_matches(test.node, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known[:10])}"
            raise fault(position, "node", f"the inventory has no node {test.node!r}; {hint}")
    return tests
