"""Includes and calls of the C files run one way: no file needs, by any way, one that needs it.

A module is a .c with the .h of its name. It needs what it includes, and what defines a function or a variable that it
uses without defining it: what the linker knows of its object file, in the same program.
"""

from __future__ import annotations

import graphlib
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
PROGRAMS = {"server": build.SERVER, "client": build.CLIENT, "driver": build.DRIVER, "nvml": build.NVML}
OPTIONS = ('-DENGINE_RELEASE="x"', '-DRUNS_NO_KERNELS="x"', *build.emulated_flags())
VERBS = ("-DWITH_VERBS",) if "verbs" in build.transports() else ()
Arrows = dict[str, set[str]]


def symbols(source: Path, target: Path) -> list[tuple[str, str]]:
    """Names and kinds of an object file's symbols, as nm has them: U is what others have to define."""
    flags = [flag for flag in build.FLAGS if not flag.startswith(("-O", "-Wl", "-D_FORTIFY"))]
    words = ["gcc", *flags, *OPTIONS, *VERBS, "-c", "-o", str(target), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    listed = subprocess.run(["nm", "-P", str(target)], check=True, capture_output=True, text=True).stdout
    return [(line.split()[0], line.split()[1]) for line in listed.splitlines()]


def module(path: Path, root: Path) -> str:
    return path.resolve().relative_to(root.resolve()).with_suffix("").as_posix()


def arrows(root: Path, sources: Sequence[str], scratch: Path, ignored: str = r"(?!)") -> Arrows:
    """Module -> modules that it needs, of one program; uses of names like `ignored` aside."""
    paths = [root / name for name in sources]
    with ThreadPoolExecutor(2) as pool:
        known = list(pool.map(symbols, paths, (scratch / f"{i}.o" for i in range(len(paths)))))
    home: dict[str, str] = {}
    for kinds in ("WV", "TDBRC"):  # what is weak gives way
        for path, names in zip(paths, known, strict=True):
            home |= {name: module(path, root) for name, kind in names if kind in kinds}
    found: Arrows = {module(path, root): set() for path in paths}
    for path, names in zip(paths, known, strict=True):
        needed = {name for name, kind in names if kind == "U" and not re.match(ignored, name)}
        found[module(path, root)] |= {home[name] for name in needed if name in home}
    waiting = list(paths)
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE):
            header = (path.parent / name).resolve()
            found.setdefault(module(path, root), set()).add(module(header, root))
            if header not in seen:
                seen.add(header)
                waiting.append(header)
    return {name: needs - {name} for name, needs in found.items()}


def circle(found: Arrows) -> list[str]:
    """One of them, as it goes round; [] where there is none."""
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as fault:
        return list(reversed(fault.args[1]))
    return []


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_file_needs_one_that_needs_it(program: str, tmp_path: Path) -> None:
    found = arrows(build.SOURCES, PROGRAMS[program], tmp_path)
    assert sum(map(len, found.values())) > len(found) > 4
    assert circle(found) == []


def test_what_programs_share_needs_none_of_them(tmp_path: Path) -> None:
    """`shared` knows neither the engine nor the devices, and these do not know each other. CUDA's own functions, which
    each library has, may be asked for by their names: that is what a program's look-up of them does."""
    folders: Arrows = {}
    for program, sources in PROGRAMS.items():
        (tmp_path / program).mkdir()
        for name, needs in arrows(build.SOURCES, sources, tmp_path / program, r"cu[A-Z]").items():
            folders.setdefault(name.split("/")[0], set()).update(need.split("/")[0] for need in needs)
    assert folders == {"reference": {"reference", "shared"}, "devices": {"devices", "shared"}, "shared": {"shared"}}


@pytest.mark.parametrize(
    ("files", "round_trip"),
    [
        ({"a.c": "int b(void); int a(void) { return b(); }", "b.c": "int a(void); int b(void) { return a(); }"}, "ab"),
        ({"a.c": '#include "b.h"\nint a;', "b.c": "extern int a; int b(void) { return a; }", "b.h": ""}, "ab"),
        ({"a.c": '#include "a.h"', "b.c": "", "a.h": '#include "b.h"', "b.h": '#include "a.h"'}, "ab"),
        ({"a.c": "int b(void); int a(void) { return b(); }", "b.c": "static int a; int b(void) { return a; }"}, ""),
    ],
)
def test_circles_by_calls_variables_and_includes_are_found(
    tmp_path: Path, files: dict[str, str], round_trip: str
) -> None:
    (tmp_path / "x").mkdir()
    for name, text in files.items():
        if name.endswith(".h"):
            text = f"#pragma once\n{text}"
        (tmp_path / "x" / name).write_text(text + "\n")
    found = circle(arrows(tmp_path, ("x/a.c", "x/b.c"), tmp_path))
    assert {Path(name).name for name in found} == {*round_trip}
