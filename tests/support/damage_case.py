"""Small good runs, and what can happen to their files: one thing at a time."""

from __future__ import annotations

import datetime
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.support import rdma_case
from tests.support.raw_case import NOTHING, keep, measured
from tests.support.report_fixture import RUN, results, topology
from tests.support.site import CRITERIA, addressed, plan_of, write_results, write_run
from validation.model import REPORT, Denied, Plan, RunInfo
from validation.model.load import load_json, read_results
from validation.plan.suites import SUITES
from validation.rules.profile import read_profile
from validation.run.read import tied

Files = dict[str, bytes]
FOLDER, NOWHERE, LOOP = b"\0 a folder", b"\0 a link that leads nowhere", b"\0 a link to itself"
"""Contents that are none: what else can lie in a file's place."""
WAIVED = "rm.layout"  # of which the run has no measurement
AGREED = (
    f"waivers:\n- {{criterion: {WAIVED}, who: A. Example, when: 2026-11-20, why: no data yet, expires: 2027-01-01}}\n"
)


def small_run(run_dir: Path, virtual: bool, slow: str | None = None) -> Path:
    """Two GPU servers with all suites, as in the lab or as on hardware."""
    whole = topology(virtual)
    topo = whole.model_copy(update={"nodes": tuple(n for n in whole.nodes if n.name.startswith("gpu"))})
    plan = plan_of(topo, run=RUN)
    return write_run(run_dir, topo, plan, results(run_dir, topo, plan, slow, None, "", virtual), judged=False)


def agreed_run(run_dir: Path) -> Path:
    """Two GPU servers as on hardware, accepted by a profile and a waiver; two measurements took two attempts.

    The first attempt of one was slow beside other programs, that of the other never began.
    """
    small_run(run_dir, virtual=False)
    info = load_json(run_dir / "run.json", RunInfo)
    plan = load_json(run_dir / "plan.json", Plan)
    lines = {r.measurement: r for r in read_results(run_dir / "results.jsonl", info.run)[0]}
    slow, gone = [m for m in plan.measurements if m.kind == "tcp-bandwidth"]
    first, second = lines[slow.id], lines[gone.id]
    bad = tuple(s.model_copy(update={"value": 0.8 * s.value}) for s in first.samples)
    busy = (Denied(where=slow.nodes[0], seconds=4.0, cpus=8, steal=0.3),)
    lines[slow.id] = measured(run_dir, slow, first.model_copy(update={"samples": bad, "denied": busy}))
    lost = {"status": "unreachable", "error": "connection lost", "samples": (), "facts": {}}
    shutil.rmtree(run_dir / "raw" / gone.id)
    nothing = second.provenance.model_copy(update={"raw": keep(run_dir, gone, {"out": "", "err": "", REPORT: NOTHING})})
    lines[gone.id] = second.model_copy(update={**lost, "provenance": nothing})
    later = [measured(run_dir, slow, first.model_copy(update={"attempt": 2}))]
    later += [measured(run_dir, gone, second.model_copy(update={"attempt": 2}))]
    (run_dir / "profile.yml").write_text(_profile())
    (run_dir / "waivers.yml").write_text(AGREED)
    fresh = info.model_copy(update={"profile": "ours", "documents": tied(run_dir)})
    (run_dir / "run.json").write_text(fresh.model_dump_json(indent=2))
    write_results(run_dir, [*lines.values(), *later])
    return run_dir


def _profile() -> str:
    """Profile training-quick, in which one criterion more is owed."""
    made = yaml.safe_load(read_profile("training-quick", CRITERIA, SUITES)[1].text)
    made["name"] = "ours"
    made["owed"].append(WAIVED)
    for left in made["left_out"]:
        left["criteria"] = [id_ for id_ in left["criteria"] if id_ != WAIVED]
    made["left_out"] = [left for left in made["left_out"] if left["criteria"]]
    return str(yaml.safe_dump(made))


def rdma_run(run_dir: Path) -> Path:
    """Ports of real machines, read twice: their counters, their QoS settings."""
    topo = rdma_case.REAL.model_copy(update={"nodes": rdma_case.REAL.nodes[:2]})
    whole = plan_of(topo, rdma_case.LOADED, "roce40", RUN.replace("tcp10", "roce40"))
    made = {r.measurement: r for r in rdma_case.results(topo, whole)}
    found = []
    for index, m in enumerate(whole.measurements):
        if m.id not in made:  # RDMA's own transport is not made here: those measurements are missing
            continue
        result = made[m.id]
        hour, minute = divmod(16 + index, 60)
        times = {key: f"2026-11-21T{10 + hour}:{minute:02d}:0{s}Z" for key, s in (("started", 0), ("ended", 4))}
        devices = tuple(str(e) for e in m.endpoints)
        provenance = result.provenance.model_copy(update={**times, "devices": devices})
        result = result.model_copy(update={"run": whole.run, "provenance": provenance})
        if m.kind == "tcp-bandwidth":  # one sample for each interval
            tcp = [s for s in result.samples if s.metric == "tcp_bandwidth_gbps"]
            result = result.model_copy(update={"samples": tuple(tcp[:1] * 12)})
        facts = rdma_case.port_facts(topo, m) if m.kind == "rdma-ports" else None
        (result,) = addressed(topo, [result])
        found.append(measured(run_dir, m, result, facts))
    return write_run(run_dir, topo, whole, found, judged=False)


def put(path: Path, content: bytes | None) -> None:
    """What lies at `path` becomes `content`; nothing where that is None."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif content in (None, FOLDER, NOWHERE, LOOP) or path.is_symlink():
        path.unlink(missing_ok=True)
    if content == FOLDER:
        path.mkdir()
    elif content in (NOWHERE, LOOP):
        path.symlink_to("nowhere" if content == NOWHERE else path.name)
    elif content is not None:
        path.write_bytes(content)


# --- damages ---------------------------------------------------------------------------------------------------


def files_of(run_dir: Path) -> Files:
    """Everything in a run, by name."""
    return {
        path.relative_to(run_dir).as_posix(): path.read_bytes() for path in sorted(run_dir.rglob("*")) if path.is_file()
    }


def damages(files: Files, waivers: str) -> st.SearchStrategy[tuple[str, Files]]:
    """One damage to one of the files: what was done, and the files afterwards."""
    names = sorted(files)
    groups = [
        [n for n in names if n == "results.jsonl"],
        [n for n in names if n.endswith(".json") and "/" not in n],
        [n for n in names if n.endswith(".yml")],
        [n for n in names if n.startswith("raw/") and not n.endswith(".err")],
        names,
    ]
    return st.one_of(
        st.sampled_from([g for g in groups if g]).flatmap(st.sampled_from).flatmap(lambda name: damage(files, name)),
        st.sampled_from(["waivers.yml", "criteria/00-own.yml", "criteria/own.txt"]).map(
            lambda name: (f"{name}: added", {**files, name: waivers.encode()})
        ),
    )


def damage(files: Files, name: str) -> st.SearchStrategy[tuple[str, Files]]:
    """One damage to that file."""
    content = files[name]
    ways = [_whole(files, name), _bytes(content)]
    if name.endswith(".json"):
        ways += [_json(json.loads(content)).map(lambda d: (d[0], _dumps(d[1], 2).encode()))] * 3
    if name == "results.jsonl":
        ways += [_lines(content.decode().splitlines(), as_json=True)] * 4
    if name.endswith((".yml", ".out")):
        ways += [_lines(content.decode().splitlines(), as_json=False)] * 2

    def into(done: tuple[str, bytes | Files]) -> tuple[str, Files]:
        words, result = done
        return f"{name}: {words}", result if isinstance(result, dict) else {**files, name: result}

    return st.one_of(ways).map(into)  # type: ignore[arg-type]


def _whole(files: Files, name: str) -> st.SearchStrategy[tuple[str, Files]]:
    without = {n: c for n, c in files.items() if n != name}
    folder, _, base = name.rpartition("/")
    beside = f"{folder}/x{base}" if folder else f"x{base}"
    like = [n for n in files if n.rpartition(".")[2] == name.rpartition(".")[2] and n != name] or [name]
    return st.one_of(
        st.just(("dropped", without)),
        st.sampled_from([FOLDER, NOWHERE, LOOP]).map(lambda odd: (odd[2:].decode(), {**files, name: odd})),
        st.just(("renamed", {**without, f"{name}~": files[name]})),
        st.just(("renamed within its kind", {**without, beside: files[name]})),
        st.just(("duplicated", {**files, beside: files[name]})),
        st.sampled_from(like).map(lambda o: (f"swapped with {o}", {**files, name: files[o], o: files[name]})),
        st.sampled_from(like).map(lambda o: (f"replaced by {o}", {**files, name: files[o]})),
    )


def _bytes(content: bytes) -> st.SearchStrategy[tuple[str, bytes]]:
    place = st.integers(0, max(len(content) - 1, 0))
    return st.one_of(
        st.just(("emptied", b"")),
        place.map(lambda at: (f"cut at {at}", content[:at])),
        place.map(lambda at: (f"byte {at} lost", content[:at] + content[at + 1 :])),
        st.tuples(place, st.sampled_from(b"0129.-x\n\0\xff")).map(
            lambda d: (f"byte {d[0]} is {d[1]}", content[: d[0]] + bytes([d[1]]) + content[d[0] + 1 :])
        ),
        st.just(("zeros at its end", content + b"\0" * 64)),
        st.just(("a mark of byte order before it", b"\xef\xbb\xbf" + content)),
        st.just(("its lines end as in Windows", content.replace(b"\n", b"\r\n"))),
        st.just(("its lines end as in old Macs", content.replace(b"\n", b"\r"))),
        st.just(("in UTF-16", content.decode(errors="replace").encode("utf-16"))),
        st.just(("half a character at its end", content + b"\xed\xa0\x80")),
    )


INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
TWICE = "\0again"
"""End of a key that is to be written without it: the same key a second time."""


def _moves(text: str) -> Iterator[str]:
    """A time as the same instant in other zones, and moved."""
    instant = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    for hours in (-23, 14):
        yield instant.astimezone(datetime.timezone(datetime.timedelta(hours=hours))).isoformat()
    yield instant.replace(tzinfo=None).isoformat()
    for days in (-1, 1, 3650):
        yield (instant + datetime.timedelta(days=days)).isoformat()
    yield from ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59")


def _dumps(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent).replace(json.dumps(TWICE)[1:], '"')


VALUES = [
    0,
    -1,
    1,
    0.5,
    1e12,
    1e-9,
    9000,
    "",
    "0.98",
    "ok",
    "failed",
    "none",
    "kvm",
    math.nan,
    math.inf,
    "\0",
    "\ud800",
    True,
    False,
    None,
    [],
    {},
    ["x"],
]


def _places(document: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        found.append((key,))
        if isinstance(value, (dict, list)):
            found += [(key, *rest) for rest in _places(value)]
    return found


def _json(document: Any) -> st.SearchStrategy[tuple[str, Any]]:
    places = _places(document)

    def changed(place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
        copy = json.loads(json.dumps(document))
        parent = copy
        for key in place[:-1]:
            parent = parent[key]
        change(parent, place[-1])
        return copy

    def drop(parent: Any, key: Any) -> None:
        del parent[key]

    def twice(parent: Any, key: Any) -> None:
        if isinstance(parent, list):
            parent.insert(key, parent[key])
        else:
            parent[f"{key}2"] = parent[key]

    def again(parent: Any, key: Any) -> None:
        if isinstance(parent, dict):  # before it, after it: which of the two counts is the reader's choice
            items = list(parent.items())
            parent.clear()
            for name, value in items:
                parent[name] = value
                if name == key:
                    parent[f"{key}{TWICE}"] = "x" if isinstance(value, str) else 1
        else:
            parent.append(parent[key])

    def move(by: int) -> Callable[[Any, Any], None]:
        def change(parent: Any, key: Any) -> None:
            for name in parent if isinstance(parent, dict) else range(len(parent)):  # all times that stand together
                value = parent[name]
                if isinstance(value, str) and INSTANT.fullmatch(value):
                    parent[name] = list(_moves(value))[by]

        return change

    def rename(parent: Any, key: Any) -> None:
        if isinstance(parent, list):
            parent.append(parent.pop(key))
        else:
            parent[f"{key}x"] = parent.pop(key)

    def scale(parent: Any, key: Any) -> None:
        value = parent[key]
        if isinstance(value, bool):
            parent[key] = not value
        elif isinstance(value, (int, float)):
            parent[key] = value * 10
        elif isinstance(value, str):
            parent[key] = value.replace("2", "1") if "2" in value else f"{value}x"
        elif isinstance(value, list):
            value.reverse()

    def retype(parent: Any, key: Any) -> None:
        value = parent[key]
        parent[key] = str(value) if isinstance(value, (int, float)) else [value]

    def put(value: Any) -> Callable[[Any, Any], None]:
        def change(parent: Any, key: Any) -> None:
            parent[key] = value

        return change

    def put_moved(by: int) -> Callable[[Any, Any], None]:
        def change(parent: Any, key: Any) -> None:
            parent[key] = list(_moves(parent[key]))[by]

        return change

    ways: list[tuple[str, Callable[[Any, Any], None]]] = [
        ("dropped", drop), ("duplicated", twice), ("renamed or moved", rename), ("scaled", scale), ("retyped", retype),
        ("twice under one key", again), *((f"set to {value!r}", put(value)) for value in VALUES),
    ]  # fmt: skip
    any_ = st.tuples(st.sampled_from(places), st.sampled_from(ways))
    times = [place for place in places if INSTANT.fullmatch(str(_at(document, place)))]
    moves: list[tuple[str, Callable[[Any, Any], None]]] = []
    if times:
        for number, moved in enumerate(_moves("2026-11-21T10:15:00Z")):
            moves.append((f"moved as to {moved}", put_moved(number)))
            moves.append((f"moved with the times beside it as to {moved}", move(number)))
    timed = st.tuples(st.sampled_from(times), st.sampled_from(moves)) if times else any_
    return st.one_of(any_, any_, any_, timed).map(
        lambda d: (f"{'.'.join(map(str, d[0]))} {d[1][0]}", changed(d[0], d[1][1]))
    )


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def _lines(lines: list[str], as_json: bool) -> st.SearchStrategy[tuple[str, bytes]]:
    def text(changed: list[str]) -> bytes:
        return "".join(f"{line}\n" for line in changed).encode()

    at = st.integers(0, max(len(lines) - 1, 0))
    if not lines:
        return st.just(("a line added", b"x: 1\n"))
    ways: list[Any] = [
        at.map(lambda i: (f"line {i} dropped", text([*lines[:i], *lines[i + 1 :]]))),
        at.map(lambda i: (f"line {i} duplicated", text([*lines[: i + 1], *lines[i:]]))),
        at.map(lambda i: (f"cut after line {i}", text(lines[:i]))),
        st.tuples(at, at).map(
            lambda d: (
                f"lines {d[0]} and {d[1]} swapped",
                text([lines[d[1]] if i == d[0] else lines[d[0]] if i == d[1] else v for i, v in enumerate(lines)]),
            )
        ),
    ]
    if as_json:

        def one(i: int) -> st.SearchStrategy[tuple[str, bytes]]:
            return _json(json.loads(lines[i])).map(
                lambda d: (f"line {i}: {d[0]}", text([*lines[:i], _dumps(d[1]), *lines[i + 1 :]]))
            )

        def appended(i: int) -> st.SearchStrategy[tuple[str, bytes]]:
            return _json(json.loads(lines[i])).map(
                lambda d: (f"line {i} again with {d[0]}", text([*lines, _dumps(d[1])]))
            )

        ways += [at.flatmap(one)] * 4 + [at.flatmap(appended)]
    else:
        ways.append(
            st.tuples(at, st.sampled_from([("9", "1"), ("1", "0"), (".", ""), ("true", "false"), (":", "")])).map(
                lambda d: (
                    f"line {d[0]}: {d[1][0]!r} is {d[1][1]!r}",
                    text([v.replace(*d[1]) if i == d[0] else v for i, v in enumerate(lines)]),
                )
            )
        )
    return st.one_of(ways)
