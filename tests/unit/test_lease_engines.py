"""What each engine's server is started with, and what its client is told. Lupine and Bitfusion by documentation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from toolkit.lease import LeaseError, framework_engine
from toolkit.lease.engines import (
    EngineGpus,
    EngineStart,
    LeasedGpu,
    Server,
    installed,
    load,
    lupine,
    reference,
    run_elsewhere,
    torch,
    transport_of,
)


def start(shards: int = 140, mps: bool = False, devices: int = 1) -> EngineStart:
    limit = None if shards == 140 else 32768 * shards // 140
    given = tuple(
        LeasedGpu(i, f"GPU-{i}", "Tesla V100", 32768, shards, 140, limit, context_bytes=300 << 20)
        for i in range(devices)
    )
    return EngineStart(
        Path("/e"),
        "r1",
        "10.0.0.1",
        21000,
        Path("/p"),
        Path("/t"),
        ("10.0.0.2",),
        given,
        Path("/run/mps") if mps else None,
    )


def test_reference_limits_memory_by_itself() -> None:
    command = reference.command(start(35))
    words = list(command.argv)
    assert words[words.index("--memory-limit") + 1] == str(8192 << 20)
    assert words[words.index("--context-bytes") + 1] == str(300 << 20)
    assert words[words.index("--allow") + 1] == "10.0.0.2"
    assert words[words.index("--token-file") + 1] == "/t"
    assert dict(command.environment) == {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    assert "--memory-limit" not in reference.command(start()).argv


def test_the_transport_of_the_servers_is_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = list(reference.command(replace(start(), transport="verbs")).argv)
    assert words[words.index("--transport") + 1] == "verbs"
    by = [Server("10.0.0.1", 21000, "a" * 20, 1, "verbs"), Server("10.0.0.3", 21010, "b" * 20, 2)]
    with pytest.raises(LeaseError, match="speak tcp and verbs"):
        reference.client(Path("/e"), by, tmp_path)
    assert not list(tmp_path.iterdir()), "no tokens are left"
    assert reference.client(Path("/e"), by[:1], tmp_path)["ELASTIC_AI_TRANSPORT"] == "verbs"
    (tmp_path / "tokens").unlink()
    with pytest.raises(LeaseError, match="speak tcp and verbs"):
        torch.client(Path("/e"), by, tmp_path)
    assert not list(tmp_path.iterdir())
    assert torch.client(Path("/e"), by[:1], tmp_path)["ELASTIC_AI_TRANSPORT"] == "verbs"
    monkeypatch.setattr(framework_engine, "python_of", lambda *_: Path("/python"))
    words = list(torch.command(replace(start(), transport="verbs")).argv)
    assert words[words.index("--transport") + 1] == "verbs"
    for name in ("lupine", "bitfusion"):
        transport_of(name, "tcp")
        with pytest.raises(LeaseError, match="speaks tcp and not verbs"):
            transport_of(name, "verbs")


def test_mps_holds_every_device_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lupine, "gate_of", lambda folder: folder / "lib-server/gate.so")
    environment = dict(lupine.command(start(20, mps=True, devices=2)).environment)
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "14.2857"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4681M,1=4681M"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert environment["LUPINE_PORT"] == "21000"
    assert environment["LD_LIBRARY_PATH"] == "/e/lib-server", "the client's libcuda.so.1 is in lib"
    assert environment["LUPINE_CHECKPOINT_LIBRARY"] == "/e/lib-server/gate.so"
    assert not any(key.startswith("CUDA_MPS") for key in lupine.command(start(mps=True)).environment)


def test_a_part_that_lupine_cannot_hold_is_refused() -> None:
    assert "no limits of its own" in lupine.keeps_part(start(35))
    assert lupine.keeps_part(start(35, mps=True)) == ""
    assert lupine.MAX_SERVERS == 7


def test_clients(tmp_path: Path) -> None:
    servers = [Server("10.0.0.1", 21000, "a" * 20, 1), Server("10.0.0.3", 21010, "b" * 20, 2)]
    told = reference.client(Path("/e"), servers, tmp_path)
    assert told["ELASTIC_AI_SERVERS"] == "10.0.0.1:21000,10.0.0.3:21010"
    assert Path(told["ELASTIC_AI_TOKEN_FILE"]).read_text() == "a" * 20 + "\n" + "b" * 20 + "\n"
    assert Path(told["ELASTIC_AI_TOKEN_FILE"]).stat().st_mode & 0o777 == 0o600
    assert told["LD_LIBRARY_PATH"].startswith("/e/lib")
    assert "a" * 20 not in str(told)
    assert str(reference.secret(tmp_path)) == told["ELASTIC_AI_TOKEN_FILE"]
    told = lupine.client(Path("/e"), servers, tmp_path)
    assert (told["LUPINE_SERVER"], told["LUPINE_DISABLE_LOCAL"]) == ("10.0.0.1:21000,10.0.0.3:21010", "1")
    assert told[lupine.SECRET_VARIABLE] == f"{'a' * 20},{'b' * 20}", "each server looks for its own"
    assert lupine.secret(tmp_path) is None
    assert (reference.HOLDS_MEMORY_OF, lupine.HOLDS_MEMORY_OF) == ("lease", "program")


def test_bitfusion_is_asked_in_its_own_words() -> None:
    elsewhere = run_elsewhere("bitfusion")
    assert run_elsewhere("reference") is run_elsewhere("lupine") is None
    assert elsewhere(["python", "x.py"], EngineGpus(2, Fraction(1, 2))) == [
        "bitfusion", "run", "-n", "2", "-p", "0.5", "--", "python", "x.py",
    ]  # fmt: skip
    asked = elsewhere(["a"], EngineGpus(1, memory_mib=4096, servers=("10.0.0.1",)))
    assert asked[4:-2] == ["-m", "4096", "-l", "10.0.0.1:56001"]
    with pytest.raises(LeaseError, match="host or host:port"):
        elsewhere(["a"], EngineGpus(1, servers=("a b",)))


def test_engines_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LeaseError, match="unknown remoting engine"):
        load("os")
    with pytest.raises(LeaseError, match="no remoting engine is installed"):
        installed(tmp_path)
    (tmp_path / "engine.json").write_text("{}")
    with pytest.raises(LeaseError, match="has no engine"):
        installed(tmp_path)
