"""What leases write for each other: each form comes back as it was written, and what is damaged or hostile is refused
with one sentence that names the file and the field."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lease_forms
from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.commands import lease as lease_command
from toolkit.commands import run
from toolkit.lease import LeaseError
from toolkit.lease.client.keep_request import KeepRequest
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.endpoint import LeaseEndpoint, NoEndpoint, parse
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.fields import MOST_BYTES, Fields
from toolkit.lease.instance_record import INSTANCE, Instance
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.pool_file import PoolDescription, PoolServer, ServerGpu, parse_pool, read_pool
from toolkit.lease.server import ages, instance, native, sweep
from toolkit.lease.server.native_records import NativeRecord, folder_of, read_records
from toolkit.lease.static_forms import (
    StaticGrant,
    StaticLease,
    StaticWish,
    answer_of,
    leases_text,
    parse_wish,
    read_grant,
    read_leases,
)
from toolkit.lease.wire import Deadline, EndCode

WORDS = st.text(st.characters(blacklist_categories=["C"], blacklist_characters="\x7f"), max_size=40)
NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
ADDRESSES = st.ip_addresses(v=4).map(str)
CLIENTS = st.lists(ADDRESSES, min_size=1, max_size=8).map(tuple)
SECONDS = st.none() | st.floats(0, 1e10, allow_nan=False)
COUNTS, PORTS = st.integers(0, 1 << 40), st.integers(1, 65535)
WHERE = st.sampled_from(["client", "server"])


@st.composite
def gpus(draw: st.DrawFn) -> LeasedGpu:
    of = draw(st.integers(1, 5040))
    files = st.lists(st.integers(0, 300).map(lambda n: f"/dev/nvidia-caps/nvidia-cap{n}"), max_size=2).map(tuple)
    return LeasedGpu(
        draw(st.integers(0, 64)), f"GPU-{draw(NAMES)}", draw(WORDS), draw(COUNTS), draw(st.integers(1, of)), of,
        draw(st.none() | COUNTS), draw(st.booleans()), draw(COUNTS), draw(st.sampled_from(["", "GPU-1"])), draw(files),
        draw(st.sampled_from(["", "9.0", "12.1"])), draw(st.sampled_from(["", "580.126.20"])),
        draw(st.integers(0, 20_000)),
    )  # fmt: skip


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    where = draw(WHERE)
    return lease_forms.instance(
        job=draw(st.sampled_from(["41", "s3", "4123456"])), where=where, clients=draw(CLIENTS), address=draw(ADDRESSES),
        port=draw(PORTS), agent_port=draw(PORTS), devices=tuple(draw(st.lists(gpus(), min_size=1, max_size=3))),
        host=draw(NAMES), mode=draw(st.sampled_from(["run", "hold"])), release=draw(WORDS), deadline=draw(SECONDS),
        slurm_end=draw(SECONDS), idle_s=draw(SECONDS), owner_uid=draw(st.integers(0, 0xFFFFFFFE)),
        mps_pipe=draw(st.sampled_from([None, Path("/run/nvidia-mps")])), job_memory_mib=draw(COUNTS),
        notes=tuple(draw(st.lists(WORDS, max_size=2))), transport=draw(st.sampled_from(["tcp", "verbs"])),
    )  # fmt: skip


@given(instances())
def test_an_instance_comes_back_as_it_was_written(one: Instance) -> None:
    assert Instance.parse(one.text()) == one


@given(instances(), st.from_regex(r"[A-Za-z0-9_-]{16,60}", fullmatch=True))
def test_an_endpoint_comes_back_as_it_was_written(one: Instance, token: str) -> None:
    endpoint = LeaseEndpoint.of(one, token, "gpu1")
    assert parse(endpoint.text()) == endpoint
    grant = StaticGrant(endpoint, "2 x 1/2 GPU", "")
    assert read_grant(answer_of(grant.text(), "gpu1")) == grant


@given(
    st.builds(
        JobComment, CLIENTS, NAMES, st.sampled_from(["run", "hold"]),
        st.from_regex(r"[A-Za-z0-9 ./x]{0,40}", fullmatch=True),
        st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), WHERE,
    )
)  # fmt: skip
def test_a_comment_comes_back_as_it_was_written(comment: JobComment) -> None:
    assert JobComment.read(comment.text()) == comment


@given(st.builds(StaticWish, st.integers(1, 64), st.sampled_from(["1", "0.5", "1/7"]), CLIENTS, NAMES, PORTS))
def test_a_static_wish_comes_back_as_it_was_written(wish: StaticWish) -> None:
    assert parse_wish(wish.text()) == wish


@given(st.lists(st.builds(StaticLease, st.sampled_from(["s1", "s22"]), WORDS, WORDS, NAMES, SECONDS), max_size=3))
def test_static_leases_come_back_as_they_were_written(leases: list[StaticLease]) -> None:
    assert read_leases(answer_of(leases_text(leases), "gpu1")) == leases


@given(st.booleans(), st.floats(0, 1e10), st.floats(-1e10, 1e10), st.sampled_from(list(EndCode)), st.booleans())
def test_a_deadline_comes_back_as_it_was_written(
    ends: bool, until: float, due: float, code: EndCode, idle: bool
) -> None:
    moments = (until, due) if ends else (None, None)
    deadline = Deadline(*moments, code, *((abs(due), 600.0) if idle else (None, None)))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "deadline").write_text(deadline.text())
        assert Deadline.read(Path(folder) / "deadline") == deadline


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", '{"until": null, "due": null}', '{"until": NaN, "due": NaN, "code": "time"}',
        '{"until": [], "due": 1, "code": "time"}', '{"until": 1, "due": null, "code": "time"}',
        '{"until": 1, "due": 1, "code": "never"}', '{"until": -1, "due": 1, "code": "time"}',
        '{"until": 1, "due": 1, "code": "time", "idle_due": 1}',
        '{"until": 1, "due": 1, "code": "time", "idle_due": null, "idle_s": null}',
    ],
)  # fmt: skip
def test_what_is_no_deadline_ends_no_lease_and_keeps_none_for_ever(
    text: str, tmp_path: Path, host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent goes on with what it knew; the sweep says so of a lease that it is to look at."""
    (tmp_path / "deadline").write_text(text)
    with pytest.raises(LeaseError, match=r"/deadline\b"):
        Deadline.read(tmp_path / "deadline")
    job = jobs_of(slurm_job(41, uid=os.getuid() or 1001, account="research", gres="gpu:v100:1(IDX:1)"))[0]
    instance.start(host, job, host.serve(idle_minutes={"users.research": 1.0}))
    path = host.run_dir / "41" / "deadline"
    path.unlink()
    path.write_text(text)
    if os.getuid():
        host.slurm.answers["squeue"] = "41 RUNNING 1795276800 N/A\n"
        assert sweep.sweep(host) == 0
        assert "idleness cannot be measured" in capsys.readouterr().err


def test_names_that_were_seen_are_those_of_numbers_alone(host: FakeHost) -> None:
    host.run_dir.mkdir(parents=True)
    for damaged in ("", "[]", '{"41": "long"}', '{"41": null}', "[" * 100_000):
        (host.run_dir / ages.SEEN).write_text(damaged)
        assert ages.seen_for_s(host, ["41"]) == {"41": 0.0}
    host.clock.now += 7
    assert ages.seen_for_s(host, ["41", "42"]) == {"41": 7.0, "42": 0.0}


@given(st.builds(NativeRecord, st.integers(0, 0xFFFFFFFE), *[st.lists(st.integers(0, 64)).map(tuple)] * 2))
def test_a_record_of_a_native_job_comes_back_as_it_was_written(record: NativeRecord) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record.write(Path(folder) / "50")
        assert NativeRecord.read(Path(folder) / "50") == record


def test_a_record_of_a_native_job_that_cannot_be_read_lets_nobody_in_and_gives_nothing_out(host: FakeHost) -> None:
    conf = host.serve()
    folder_of(host).mkdir(parents=True)
    NativeRecord(1001, (0,), (0,)).write(folder_of(host) / "50")
    assert (native.native_users(host), read_records(host).wholes()) == (({0: {1001}}, {}), {0: "50"})
    for damaged in ("", '{"uid": 1001, "gpus": [1]}', '{"uid": 0, "gpus": ["1"], "whole": [], "files": []}'):
        (folder_of(host) / "51").write_text(damaged)
        assert native.refresh(host, conf) == []
        assert host.fence.users == {0: {1001}}
        with pytest.raises(LeaseError, match=r"which GPUs job 51 has cannot be told: \S*gpu-users/51.*; end that job"):
            leased(host, 41, "gpu:v100:1(IDX:3)")
    assert native.revoke(host, "51") == []
    leased(host, 41, "gpu:v100:1(IDX:3)")


#: Fields that a lease which began before an upgrade does not have.
LATER = {"peers", "up_to"}


def test_every_field_of_an_instance_is_read_and_none_that_is_unknown() -> None:
    whole: dict[str, Any] = json.loads(lease_forms.instance().text())
    assert set(whole) == {field.name for field in dataclasses.fields(Instance)}
    # a lease that began before an upgrade goes on without peers
    assert Instance.parse(json.dumps({k: v for k, v in whole.items() if k not in LATER})) == lease_forms.instance()
    for key in whole.keys() - LATER:
        with pytest.raises(LeaseError, match=rf"^instance\.json: {key} is missing; it is damaged, or another release"):
            Instance.parse(json.dumps({k: v for k, v in whole.items() if k != key}))
    with pytest.raises(LeaseError, match=r"^instance\.json: 'more\\n' is unknown"):
        Instance.parse(json.dumps(whole | {"more\n": 1}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("job", "../41"), ("job", 41), ("job", "s"), ("lease", True), ("lease", "41"), ("lease", -1),
        ("owner_uid", 1.5), ("owner_uid", 1 << 32), ("mode", "both"), ("mode", None), ("host", "a b"), ("clients", []),
        ("clients", "10.0.0.1"), ("clients", ["10.0.0.1 any"]), ("clients", ["::1"]), ("clients", [167772161]),
        ("address", "0.0.0.0\nIPAddressAllow=any"), ("address", ""), ("port", 0), ("port", 65536),
        ("agent_port", None), ("devices", []), ("devices", {}), ("devices", [41]), ("engine", "os;reboot"),
        ("engine", ""),
        ("engine_dir", "opt/engine"), ("engine_dir", "/opt/engine\nUser=root"), ("mps_pipe", "relative"),
        ("mps_pipe", None), ("transport", "smoke"), ("device_group", "root\nUser=root"), ("deadline", "soon"),
        ("deadline", -1), ("deadline", 1e300), ("slurm_end", True), ("deadline_file", ""), ("grace_s", None),
        ("memory_bytes", 0), ("memory_bytes", "infinity"), ("job_cpus", -1), ("tasks", 0), ("idle_s", []),
        ("started", {}), ("where", "nowhere"), ("notes", "none"), ("notes", ["a\nb"]),
    ],
)  # fmt: skip
def test_what_is_no_instance_is_refused_with_its_field(key: str, value: object) -> None:
    told = json.loads(lease_forms.instance().text()) | {key: value}
    with pytest.raises(LeaseError, match=rf"^instance\.json: {key}\b"):
        Instance.parse(json.dumps(told))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("index", -1), ("index", "0"), ("uuid", ""), ("uuid", "GPU-0 rw"), ("uuid", "GPU-0,GPU-1"), ("shards", 0),
        ("shards", 141), ("of", 0), ("limit_mib", "all"), ("emulated", 1), ("gpu_uuid", None),
        ("device_files", ["/dev/mem"]), ("device_files", ["/dev/nvidia-caps/nvidia-cap1 rw\nUser=root"]),
        ("context_bytes", -1),
    ],
)  # fmt: skip
def test_what_is_no_gpu_is_refused_with_its_place(key: str, value: object) -> None:
    told = json.loads(lease_forms.instance().text())
    told["devices"][0][key] = value
    with pytest.raises(LeaseError, match=rf"^instance\.json: devices\[0\]: {key}\b"):
        Instance.parse(json.dumps(told))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"), ("[]", "no JSON object"), ("null", "no JSON object"), ('{"a": NaN}', "NaN is no number"),
        ('{"a": 1, "a": 2}', "there twice"), ("[" * 100_000, "is not JSON"), ("x" * (MOST_BYTES + 1), "larger than"),
        ('{"a": ' + "9" * 5000 + "}", r"JSON|missing"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused(text: str, words: str) -> None:
    with pytest.raises(LeaseError, match=words):
        Instance.parse(text)


def test_a_file_that_is_no_text_or_another_leases_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    assert Instance.read(folder) is None
    (folder / INSTANCE).write_bytes(b'{"job": "\xff"}')
    with pytest.raises(LeaseError, match=r"42/instance\.json is not JSON: no UTF-8"):
        Instance.read(folder)
    lease_forms.instance(job="41").write(folder)
    with pytest.raises(LeaseError, match=r"42/instance\.json is that of job 41"):
        Instance.read(folder)


def test_what_a_pool_is_known_as_is_read_at_one_place_whatever_release_wrote_it(tmp_path: Path) -> None:
    """Of servers that the last run did not reach the file keeps what an earlier one found."""
    assert read_pool(tmp_path / "pool.json") == PoolDescription()
    gpu = {"index": 0, "uuid": "GPU-0", "name": "V100", "memory_mib": 256, "emulated": True, "mig": None, "more": 1}
    told = {"servers": {"gpu1": {"gpus": [gpu], "address": "10.0.0.1", "memory_mib": "600"}, "gpu2": {"problem": "no"}},
            "native_jobs": ["research"]}  # fmt: skip
    found = parse_pool(json.dumps(told), "pool.json")
    assert found.server("gpu1") == PoolServer("10.0.0.1", 600, "", (ServerGpu(0, "V100", 256, True),))
    assert (found.server("gpu2"), found.server("gpu3"), found.native_jobs) == (PoolServer(), PoolServer(), "classes")
    for damaged in (
        "", "[]", '{"servers": []}', '{"servers": {"gpu1": 1}}', '{"servers": {"gpu1": {"gpus": {}}}}',
        '{"servers": {"gpu1": {"gpus": [{}]}}}', '{"servers": {"gpu1": {"address": 1}}}',
        '{"servers": {"gpu1": {"memory_mib": "much"}}}', '{"servers": {"gpu1": {"memory_mib": -1}}}', "[" * 100_000,
    ):  # fmt: skip
        (tmp_path / "pool.json").write_text(damaged)
        with pytest.raises(LeaseError, match=r"^\S+/pool\.json: .*; run site\.yml again$"):
            read_pool(tmp_path / "pool.json")


@pytest.mark.parametrize(
    ("command", "form", "program"), [(run.run, RunRequest, ["true"]), (lease_command.request, KeepRequest, [])]
)
def test_a_command_has_the_options_of_its_request_and_no_others(
    command: click.Command, form: type, program: list[str]
) -> None:
    options = command.make_context("it", program).params
    wish = {field.name for field in dataclasses.fields(LeaseWish)}
    assert set(options) == wish | {field.name for field in dataclasses.fields(form)} - {"wish"}
    assert form.checked(**options).wish == LeaseWish()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lease": 41, "wish": LeaseWish(2, seconds=60)}, "--lease runs on what the lease has; omit -n, --time"),
        ({"lease": 41, "static": "gpu1-s1"}, "--lease runs on what the lease has; omit --static"),
        ({"static": "gpu1-s1", "mpi": "pmix"}, "--static runs on what the lease has; omit --mpi"),
        ({"lease": 41, "where": "server", "image": "a"}, "omit --where server, --image"),
        ({"signal_name": "STOP"}, "--signal STOP: a program that is stopped cannot end"),
    ],
)
def test_options_that_contradict_each_other_are_refused_outside_of_the_command(
    options: dict[str, Any], words: str
) -> None:
    wish = dataclasses.asdict(options.pop("wish", LeaseWish()))
    with pytest.raises(LeaseError, match=words):
        RunRequest.checked(program=("true",), **wish, **options)


def test_what_is_for_the_server_alone_is_refused_here() -> None:
    RunRequest(("true",)).check_here()
    for options in (
        {"terminal": True},
        {"folder": "/"},
        {"sync": "."},
        {"start": "gpu"},
        {"label": True},
        {"mpi": "a"},
    ):
        with pytest.raises(LeaseError, match="is for programs on the server, and this one runs here"):
            RunRequest(("true",), **options).check_here()
    for options, words in (
        ({"sync": ".", "folder": "/"}, "both say where"),
        ({"mpi": "a b"}, "--mpi a b: no kind of MPI"),
        ({"mpi": "pmix", "image": "a"}, "does not reach Slurm's MPI"),
    ):
        with pytest.raises(LeaseError, match=words):
            RunRequest(("true",), **options).how_there()


def test_an_error_shows_no_token() -> None:
    told = json.loads(lease_forms.endpoint().text()) | {"token": "short secret"}
    with pytest.raises(LeaseError, match=r"token is none; it is damaged") as refused:
        parse(json.dumps(told))
    assert "secret" not in str(refused.value)


def test_a_reason_in_place_of_an_endpoint_says_whether_another_server_may_do_it() -> None:
    for again in (True, False):
        with pytest.raises(LeaseError, match=r"^gpu1: no driver\nin two lines$"):
            parse(NoEndpoint("no driver\nin two lines", "gpu1", again).text())
    with pytest.raises(LeaseError, match="node is missing"):
        parse('{"error": "no driver"}')


@pytest.mark.parametrize("read", [parse_wish, lambda text: read_leases(answer_of(text, "gpu1"))])
def test_what_is_no_form_of_static_leases_is_refused(read: Callable[[str], object]) -> None:
    for text in ("", "{}", '{"count": 0, "leases": 1}', '{"leases": [{"lease": "41"}]}', "[]"):
        with pytest.raises(LeaseError):
            read(text)


def test_a_field_is_read_once_and_its_value_is_shown_short_and_printable() -> None:
    fields = Fields({"a": "\x1b[2J" + "x" * 400}, "it")
    with pytest.raises(LeaseError) as refused:
        fields.text("a")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 160


def leased(host: FakeHost, number: int, gres: str) -> None:
    job = jobs_of(slurm_job(number, uid=os.getuid(), gres=gres))[0]
    instance.start(host, job, host.serve())


def test_a_lease_whose_record_could_not_be_read_again_is_not_begun(host: FakeHost) -> None:
    """As with a GPU whose name is none: its owner learns why, and nothing of it stays."""
    host.gpus.found = [dataclasses.replace(gpu, name="V100\n\x1b[2J") for gpu in host.gpus.found]
    with pytest.raises(LeaseError, match=r"^instance\.json: devices\[0\]: name is 'V100"):
        leased(host, 41, "gpu:v100:1(IDX:1)")
    assert (host.systemd.units, host.firewall.open, instance.known(host).by_job) == ({}, set(), {})


@pytest.mark.parametrize("damage", ["", "{}", '{"devices": [], "port": 31000}'])
def test_a_lease_whose_record_cannot_be_read_keeps_what_it_has_and_nothing_else_is_given_out(
    host: FakeHost, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of another release, or of a disk that was full: nobody knows which GPUs it has."""
    leased(host, 41, "shard:v100:70(IDX:2)")
    leased(host, 43, "gpu:v100:1(IDX:1)")
    opened = set(host.firewall.open)
    (host.run_dir / "41" / INSTANCE).unlink()
    (host.run_dir / "41" / INSTANCE).write_text(damage)
    with pytest.raises(LeaseError, match=r"what the lease of job 41 has cannot be told: \S*41/instance\.json.*release"):
        leased(host, 42, "gpu:v100:1(IDX:3)")
    assert "41/instance.json" in host.endpoint(42)["error"]
    host.slurm.answers["squeue"] = "41 RUNNING 1795276800 N/A\n43 RUNNING 1795276800 N/A\n"
    assert sweep.sweep(host) == 0
    assert (set(host.systemd.units), host.firewall.open, host.slurm.cancelled) == ({"41", "43"}, opened, [])
    assert "its lease goes on as it is" in capsys.readouterr().err
    assert instance.end_instance(host, "41") == []
    assert {port for _client, port in host.firewall.open} == set(host.systemd.units["43"].ports), "with its ports"
    leased(host, 42, "gpu:v100:1(IDX:3)")
    assert set(host.systemd.units) == {"42", "43"}
