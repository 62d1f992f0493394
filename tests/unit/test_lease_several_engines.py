"""Several engines on a site: a lease says which, and what one site with one engine wrote before still holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.lease_forms import endpoint
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import COMMENT, jobs_of, node_text, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.client import ask
from toolkit.lease.endpoint import check_engine
from toolkit.lease.engines import (
    BESIDE,
    EngineStart,
    LeasedGpu,
    Server,
    all_installed,
    installed,
    runs,
    torch,
    transport_of,
)
from toolkit.lease.fields import DamagedDocument
from toolkit.lease.instance_record import Instance
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.server import instance
from toolkit.lease.server_conf import ServerConf
from toolkit.lease.static_forms import StaticWish, parse_wish


def put(engine_dir: Path, engine: str, beside: bool = True, **more: object) -> Path:
    """An engine that is installed, as the roles do."""
    folder = engine_dir.parent / BESIDE / engine / "current" if beside else engine_dir
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "engine.json").write_text(json.dumps({"engine": engine, "release": f"{engine}-1", **more}))
    return folder


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    (tmp_path / "current").mkdir()
    return FakeHost(folder=tmp_path / "current", slurm=FakeSlurm(node_text=node_text("gpu1") + node_text("gpu2")))


def test_engines_of_a_site_are_listed_with_the_first_one_first(tmp_path: Path) -> None:
    current = tmp_path / "current"
    assert all_installed(current) == []
    beside = put(current, "torch", torch=["2.12", "2.13"])
    assert [one.engine for one in all_installed(current)] == ["torch"]
    assert installed(current).engine == "torch", "the one engine that is there"
    put(current, "reference", beside=False)
    assert [one.engine for one in all_installed(current)] == ["reference", "torch"]
    assert installed(current).folder == current
    found = installed(current, "torch")
    assert (found.release, found.folder, found.torch) == ("torch-1", beside, ("2.12", "2.13"))
    with pytest.raises(LeaseError, match=r"engine lupine is not installed here \(it has reference and torch\); set "):
        installed(current, "lupine")
    (beside / "engine.json").write_text("[]")
    with pytest.raises(LeaseError, match=r"beside/torch/current/engine.json has no engine and release"):
        all_installed(current)


def test_a_comment_names_its_engine_and_one_without_the_word_is_the_first() -> None:
    comment = JobComment(("10.0.0.1",), "client1", engine="torch")
    assert JobComment.read(comment.text()) == comment
    assert "engine" not in replace(comment, engine="").text(), "a server of an older release reads it"
    assert JobComment.read(COMMENT).engine == ""
    for wrong in ("", "Torch", "../x", "a" * 40, 1, None):
        with pytest.raises(DamagedDocument):
            JobComment.read(json.dumps({**json.loads(COMMENT), "engine": wrong}))


def test_a_static_wish_names_its_engine_too() -> None:
    wish = StaticWish(1, "1", ("10.0.0.1",), "client1", 60, "torch")
    assert parse_wish(wish.text()) == wish
    assert "engine" not in replace(wish, engine="").text()


def test_a_lease_is_served_by_the_engine_that_it_names(host: FakeHost) -> None:
    put(host.engine_dir, "reference", beside=False)
    folder = put(host.engine_dir, "torch")
    conf = ServerConf("gpu1", "10.77.1.13", engine_dir=host.engine_dir)
    chosen = {}
    for number, comment in ((41, COMMENT), (42, COMMENT[:-1] + ',"engine":"torch"}')):
        gres, memory = f"shard:v100:70(IDX:{number - 40})", 8192
        job = jobs_of(slurm_job(number, gres=gres, comment=comment, memory_per_node=memory))[0]
        instance.start(host, job, conf)
        chosen[number] = Instance.read(host.run_dir / str(number))
    old, new = chosen[41], chosen[42]
    assert old is not None
    assert (old.engine, old.engine_dir) == ("reference", host.engine_dir)
    assert new is not None
    assert (new.engine, new.release, new.engine_dir, new.tasks) == ("torch", "torch-1", folder, torch.TASKS)
    absent = jobs_of(slurm_job(43, gres="shard:v100:70(IDX:3)", comment=COMMENT[:-1] + ',"engine":"lupine"}'))[0]
    with pytest.raises(LeaseError, match="engine lupine is not installed here"):
        instance.start(host, absent, conf)


def test_a_client_finds_the_engine_of_its_lease(tmp_path: Path) -> None:
    current = tmp_path / "current"
    put(current, "reference", beside=False)
    folder = put(current, "torch")
    assert check_engine([endpoint(engine="torch", release="torch-1")], current).folder == folder
    assert check_engine([endpoint(engine="reference", release="reference-1")], current).folder == current
    with pytest.raises(LeaseError, match="release torch-2 of the engine torch, this machine has torch-1 of torch"):
        check_engine([endpoint(engine="torch", release="torch-2")], current)
    with pytest.raises(LeaseError, match="engine lupine, this machine has reference-1 of reference"):
        check_engine([endpoint(engine="lupine", release="1")], current)


@pytest.mark.parametrize(
    ("engines", "asked", "told"),
    [
        (["reference"], "", ""),
        (["reference"], "reference", ""),
        (["reference", "torch"], "", "reference"),
        (["reference", "torch"], "torch", "torch"),
    ],
)
def test_servers_are_told_the_engine_where_there_are_several(
    host: FakeHost, engines: list[str], asked: str, told: str
) -> None:
    for name in engines:
        put(host.engine_dir, name, beside=name == "torch")
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": {"address": "10.78.1.13"}}}))
    host.network.routes["10.78.1.13"] = "10.78.1.12"
    submission = ask.against_pool(host, LeaseWish(engine=asked), "run", lambda _: None)
    assert submission.comment.engine == told
    assert ask.against_pool(host, LeaseWish(engine=asked), "run", lambda _: None, "server").comment.engine == ""


def test_servers_without_the_engine_are_left_out_and_a_pool_without_it_is_refused(host: FakeHost) -> None:
    for name in ("reference", "torch"):
        put(host.engine_dir, name, beside=name == "torch")
    host.network.routes["10.78.1.13"] = "10.78.1.12"

    def pool(**engines: list[str]) -> None:
        servers = {name: {"address": "10.78.1.13", "engines": have} for name, have in engines.items()}
        host.pool_conf.write_text(json.dumps({"servers": servers}))

    pool(gpu1=["reference", "torch"], gpu2=["reference"])
    assert ask.against_pool(host, LeaseWish(engine="torch"), "run", lambda _: None).excluded == ("gpu2",)
    assert ask.against_pool(host, LeaseWish(), "run", lambda _: None).excluded == ()
    pool(gpu1=["reference"], gpu2=["reference"])
    with pytest.raises(LeaseError, match=r"no server has the engine torch \(gpu1, gpu2\); .*--where server"):
        ask.against_pool(host, LeaseWish(engine="torch"), "run", lambda _: None)
    pool(gpu1=[], gpu2=[])  # described by a run of an older release: unknown
    assert ask.against_pool(host, LeaseWish(engine="torch"), "run", lambda _: None).excluded == ()


def test_an_engine_beside_a_first_one_by_rdma_has_it_too_or_tcp() -> None:
    assert transport_of("reference", "verbs") == "verbs"
    assert transport_of("torch", "verbs", first=False) == "verbs"
    assert transport_of("tensorflow", "verbs", first=False) == "tcp"
    with pytest.raises(LeaseError, match="speaks tcp and not verbs"):
        transport_of("tensorflow", "verbs")
    with pytest.raises(LeaseError, match="speaks tcp and not verbs"):
        transport_of("lupine", "verbs")


def begin(engine_dir: Path, limit: int | None = None, emulated: bool = True) -> EngineStart:
    gpus = tuple(LeasedGpu(i, f"GPU-{i}", "X", 256, 1 if limit else 2, 2, limit, emulated) for i in range(2))
    return EngineStart(engine_dir, "r1", "10.0.0.1", 0, Path("/p"), Path("/t"), ("10.0.0.2",), gpus)


def test_the_torch_server_runs_in_the_python_that_its_role_names(tmp_path: Path) -> None:
    current = tmp_path / "current"
    with pytest.raises(LeaseError, match="venv/bin/python is not there, and the engine torch runs by its PyTorch"):
        torch.command(begin(current))
    own = tmp_path / "venv/bin/python"
    own.parent.mkdir(parents=True)
    own.touch(0o755)
    assert torch.command(begin(current)).argv[0] == str(own)
    (tmp_path / "server.json").write_text(json.dumps({"python": "/bin/sh"}))
    command = torch.command(begin(current, limit=128))
    words = list(command.argv)
    assert words[:3] == ["/bin/sh", "-I", f"{current}/bin/elastic-ai-torchserver"]
    for option, value in (
        ("--device", "cpu"),
        ("--devices", "2"),
        ("--allow", "10.0.0.2"),
        ("--memory-limit", str(128 << 20)),
    ):
        assert words[words.index(option) + 1] == value
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert command.tells_port
    words = list(torch.command(begin(current, emulated=False)).argv)
    assert words[words.index("--device") + 1] == "cuda"
    assert not {"--memory-limit", "--devices"} & set(words)
    (tmp_path / "server.json").write_text('{"python": "relative"}')
    with pytest.raises(LeaseError, match=r"server\.json: python is 'relative'"):
        torch.command(begin(current))


def test_the_torch_client_is_told_servers_tokens_and_where_the_plug_in_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [Server("10.0.0.1", 21000, "a" * 20, 1), Server("10.0.0.3", 21010, "b" * 20, 2)]
    monkeypatch.setenv("PYTHONPATH", "/mine")
    told = torch.client(Path("/e"), servers, tmp_path)
    assert told["ELASTIC_AI_TORCH_SERVERS"] == "10.0.0.1:21000,10.0.0.3:21010,10.0.0.3:21010", "one for each device"
    assert told["PYTHONPATH"] == "/e/python:/mine"
    assert told["ELASTIC_AI_TORCH_ONLY_LEASED"] == "1", "a GPU of the client's own would be used in their place"
    tokens = torch.secret(tmp_path)
    assert tokens.read_text() == "a" * 20 + "\n" + 2 * ("b" * 20 + "\n")
    assert tokens.stat().st_mode & 0o777 == 0o600
    assert "a" * 20 not in str(told)


def test_which_engine_runs_a_framework() -> None:
    assert [runs(name, "torch") for name in ("reference", "torch", "lupine")] == [False, True, True]
    assert [runs(name, "jax") for name in ("reference", "torch", "lupine")] == [False, False, True]
