"""Where and how a program runs on the server, by what the servers were found to have; refused before any lease."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import node_text
from toolkit.lease import LeaseError
from toolkit.lease.before import choice
from toolkit.lease.before.choice import Asked, decide
from toolkit.lease.before.mounts import is_shared, network_mounts
from toolkit.lease.before.offers import (
    MOST_CHARACTERS,
    MOST_IMAGES,
    MOST_NAMES,
    ImageThere,
    Offers,
    PythonThere,
    parse_offers,
)
from toolkit.lease.before.program_needs import PythonHas
from toolkit.lease.client import placement
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.fields import DamagedDocument
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.pool_file import PoolServer, ServerGpu, parse_pool

COMMANDS = ("bash", "python3", "sh")
OWN = PythonThere("3.11.2", ("yaml",))
CPU = ImageThere(("training:latest",), "sha256:c", 900_000_000, "",
                 PythonThere("3.11.2", ("numpy", "torch"), torch="2.14.1"), COMMANDS)  # fmt: skip
GPU = ImageThere(("pytorch:latest", "nvcr.io/nvidia/pytorch:25.10"), "sha256:g", 9_100_000_000, "13.0",
                 PythonThere("3.12.3", ("numpy", "torch"), torch="2.14.1", torch_cuda="13.0"),
                 (*COMMANDS, "python"))  # fmt: skip
V100 = (ServerGpu(0, "V100"),)
#: This machine, with /home from a server of files.
MOUNTS = """21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /home rw - nfs4 files:/export/home rw
"""


def server(*images: ImageThere, mounts: dict[str, str] | None = None, emulated: bool = False) -> PoolServer:
    gpus = tuple(replace(gpu, emulated=emulated) for gpu in V100)
    return PoolServer(gpus=gpus, offers=Offers(OWN, COMMANDS, (), mounts or {}, images))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return here


def asked(text: str, torch: bool = False, **more: object) -> Asked:
    Path("train.py").write_text(text)
    return Asked(("python3", "train.py"), torch=torch, **more)  # type: ignore[arg-type]


def test_a_program_that_runs_as_it_is_takes_no_image_and_its_folder_goes_there() -> None:
    found = decide(asked("import yaml, os\n"), {"gpu1": server(GPU), "gpu2": server()}, "pytorch")
    assert (found.image, found.servers, found.program) == ("", ("gpu1", "gpu2"), ("python3", "train.py"))
    assert found.framework == "", "it imports none"
    assert found.copy is not None
    assert found.lines == (
        "this folder (1 file, 16 bytes) is copied to the server and back: gpu1, gpu2 share no folder with this machine",
    )


def test_the_sites_image_is_taken_where_the_servers_python_lacks_an_import() -> None:
    found = decide(
        asked("import numpy\nimport torch\n", torch=True), {"gpu1": server(GPU), "gpu2": server()}, "pytorch"
    )
    assert (found.image, found.identity, found.servers) == ("pytorch:latest", "sha256:g", ("gpu1",))
    assert found.framework == "PyTorch", "its GPUs are seen"
    assert found.lines[1] == (
        "image pytorch:latest (PyTorch 2.14.1, CUDA 13.0): the server's Python 3.11.2 has no numpy, torch (train.py:1)"
    )
    assert len(found.lines) <= 3


def test_python_is_python3_where_a_server_has_no_other() -> None:
    Path("train.py").write_text("import yaml\n")
    assert decide(Asked(("python", "train.py")), {"gpu1": server()}).program == ("python3", "train.py")
    Path("train.py").write_text("import torch\n")
    assert decide(Asked(("python", "train.py")), {"gpu1": server(GPU)}, "pytorch").program == ("python", "train.py")


@pytest.mark.parametrize("emulated", [False, True])
def test_a_framework_that_would_see_no_gpu_is_refused_unless_processors_are_enough(emulated: bool) -> None:
    text, image = "import torch\n", GPU if emulated else CPU
    servers = {"gpu1": server(image, emulated=emulated)}
    why = "GPUs are emulated" if emulated else "built for processors alone"
    with pytest.raises(LeaseError, match=rf"PyTorch would see no GPU: .*{why}.*--cpu-ok"):
        decide(asked(text, torch=True), servers, image.names[0])
    found = decide(asked(text, torch=True, cpu_ok=True), servers, image.names[0])
    assert found.image == image.names[0]
    assert "no GPU for it" in found.lines[1]
    assert found.framework == ""


@pytest.mark.parametrize(
    ("program", "text", "words"),
    [
        (("python3", "train.py"), "import pandas\n", r"no pandas \(train.py:1\); image pytorch:latest has no pandas"),
        (("no-such",), "", "the server has no program no-such; image pytorch:latest has no program no-such"),
        (("/usr/bin/no-such",), "", "the server has no /usr/bin/no-such"),
        (("python3", "../train.py"), "", "is not in this folder, which alone goes to the server"),
    ],
)
def test_what_no_server_can_run_is_one_sentence(program: tuple[str, ...], text: str, words: str) -> None:
    Path("train.py").write_text(text)
    Path("../train.py").write_text("")
    with pytest.raises(LeaseError, match=words):
        decide(Asked(program), {"gpu1": server(GPU), "gpu2": server(GPU)}, "pytorch")


def test_an_import_that_may_not_be_reached_refuses_nothing() -> None:
    for text in (
        "def late():\n    import pandas\n",
        "try:\n    import pandas\nexcept ImportError:\n    pass\n",
        "import sys\nsys.path.insert(0, '/opt/x')\nimport pandas\n",
        "if False:\n    import pandas\n",
    ):
        assert decide(asked(text), {"gpu1": server()}).image == ""
    with pytest.raises(LeaseError, match="pandas"):
        decide(asked("if __name__ == '__main__':\n    import pandas\n"), {"gpu1": server()})
    Path("helper.py").write_text("import pandas\n")
    with pytest.raises(LeaseError, match=r"no pandas \(helper.py:1\)"):
        decide(asked("import helper\n"), {"gpu1": server()})


def test_a_program_where_no_survey_looked_is_left_to_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = replace(server(), offers=Offers(OWN, COMMANDS, ("/opt/conda/bin",), {}, ()))
    Path("train.py").write_text("import pandas\n")
    for words in (("/opt/tool/bin/solver",), ("/opt/conda/bin/python", "train.py"), ("python3.12", "train.py")):
        if words[0] != "python3.12":
            assert decide(Asked(words), {"gpu1": own}).servers == ("gpu1",)
    other = replace(server(), offers=Offers(OWN, (*COMMANDS, "python"), (), {}, ()))
    assert decide(Asked(("python", "train.py")), {"gpu1": other}).program[0] == "python", "it is not the one surveyed"
    same = replace(other, offers=replace(other.offers, python=replace(OWN, names=("python", "python3"))))  # type: ignore[type-var]
    with pytest.raises(LeaseError, match="has no pandas"):
        decide(Asked(("python", "train.py")), {"gpu1": same})
    with pytest.raises(LeaseError, match=r"no program python3\.12"):
        decide(Asked(("python3.12", "train.py")), {"gpu1": own})
    monkeypatch.setenv("PATH", "/opt/conda/bin:/usr/bin:/bin")
    assert decide(Asked(("solver",)), {"gpu1": own}).servers == ("gpu1",)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python3").write_text("")
    with pytest.raises(LeaseError, match=f"the server has no {tmp_path}/venv/python3"):
        decide(Asked((str(tmp_path / "venv/python3"), "train.py")), {"gpu1": own})


def test_of_servers_that_were_not_surveyed_nothing_is_decided() -> None:
    found = decide(asked("import pandas\n"), {"gpu1": PoolServer(), "gpu2": PoolServer()}, "pytorch")
    assert (found.servers, found.image, found.copy, found.lines) == (("gpu1", "gpu2"), "", None, ())
    missing = decide(asked("import pandas\n", image="new:1"), {"gpu1": server()}, "pytorch")
    assert missing.servers == ("gpu1",), "it may have come since: the server is asked"


def test_a_named_image_that_one_server_has_leaves_the_others_to_be_asked() -> None:
    found = decide(asked("import torch\n", image="pytorch"), {"gpu1": server(GPU), "gpu2": server()})
    assert (found.image, found.identity, found.servers) == ("pytorch", "", ("gpu1", "gpu2"))
    with pytest.raises(LeaseError, match="image pytorch:latest has no pandas"):
        decide(asked("import pandas\n", image="pytorch"), {"gpu1": server(GPU)})


def test_a_whole_path_in_the_folder_is_one_in_its_copy(folder: Path) -> None:
    Path("train.py").write_text("import yaml\n")
    whole = Asked(("python3", str(folder / "train.py"), "--keep", str(folder)))
    assert decide(whole, {"gpu1": server()}).program == ("python3", "./train.py", "--keep", str(folder))


def test_the_same_network_folder_on_both_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"/home": "nfs files:/export/home"}
    assert network_mounts(MOUNTS) == theirs
    assert is_shared(Path("/home/alice/x"), theirs, MOUNTS)
    assert not is_shared(Path("/home/alice/x"), {"/home": "nfs other:/export/home"}, MOUNTS)
    assert not is_shared(Path("/srv/x"), theirs, MOUNTS)
    assert not is_shared(Path("/home/alice/x"), {}, MOUNTS)
    local = MOUNTS + "31 30 8:2 / /home/alice rw - ext4 /dev/sdb1 rw\n"
    assert not is_shared(Path("/home/alice/x"), theirs, local), "a disk of this machine is over it"
    alone = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    mine = {"/home": "nfs head:/home"}
    assert is_shared(Path("/home/alice"), mine, alone, frozenset({"head"})), "this machine has the files"
    assert not is_shared(Path("/home/alice"), mine, alone, frozenset({"client1"}))
    monkeypatch.setattr(choice, "is_shared", lambda _folder, there: bool(there))
    found = decide(asked("import yaml\n"), {"gpu1": server(mounts=theirs)})
    assert (found.copy, found.lines) == (None, ())


def test_pool_json_carries_what_the_servers_offer_and_damage_is_one_sentence() -> None:
    offers = Offers(OWN, COMMANDS, ("/opt/x/bin",), {"/home": "nfs a:/b"}, (GPU, CPU))
    text = json.dumps({"servers": {"gpu1": {"offers": json.loads(offers.text())}}, "default_image": "pytorch"})
    pool = parse_pool(text, "pool.json")
    assert (pool.server("gpu1").offers, pool.default_image) == (offers, "pytorch")
    assert offers.image("pytorch") == offers.image("nvcr.io/nvidia/pytorch:25.10") == offers.image("sha256:g") == GPU
    assert offers.image("pytorc") is None
    for change in ({"bins": 1}, {"commands": "sh"}, {"mounts": []}, {"images": {}}):
        with pytest.raises(DamagedDocument):
            parse_offers({**json.loads(offers.text()), **change})
        damaged = json.dumps({"servers": {"gpu1": {"offers": {**json.loads(offers.text()), **change}}}})
        with pytest.raises(LeaseError, match=r"^pool.json: .*run site.yml again"):
            parse_pool(damaged, "pool.json")


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("mounts", {"/x": "a\x1b[2J"}), ("mounts", {"/home/mallory/a\nb": "nfs c:/d"}), ("mounts", {"/x": "a" * 401}),
        ("commands", [1, "a\nb"]), ("bins", ["/opt/a\nb"]), ("images", [{"size_bytes": -1}, 1, {"names": ["a\nb"]}]),
        ("images", [{**asdict(CPU), "identity": "sha256:\n"}, {**asdict(CPU), "names": []}]),
    ],
)  # fmt: skip
def test_an_entry_that_a_user_of_a_server_could_damage_is_left_out_and_the_others_count(key: str, bad: object) -> None:
    offers = Offers(OWN, COMMANDS, ("/opt/x/bin",), {"/home": "nfs a:/b"}, (GPU, CPU))
    said = json.loads(offers.text())
    said[key] = {**bad, **said[key]} if isinstance(bad, dict) else [*bad, *said[key]]  # type: ignore[misc]
    pool = parse_pool(json.dumps({"servers": {"gpu1": {"offers": said}}}), "pool.json")
    assert pool.server("gpu1").offers == offers


def test_what_is_too_much_or_no_python_is_as_what_was_not_looked_at() -> None:
    many = [f"c{n}" for n in range(MOST_NAMES + 1)]
    python = {"version": "3.11.2", "modules": ["yaml", "a\nb"], "torch": "2\n"}
    image = json.loads(Offers(images=(CPU,)).text())["images"][0]
    said = {"python": {**python, "torch": ""}, "commands": many,
            "images": [{**image, "python": python, "commands": many}, *[image] * MOST_IMAGES]}  # fmt: skip
    found = parse_offers(said)
    assert found is not None
    assert found.python is not None
    assert (found.python.modules, found.commands, len(found.images)) == (("yaml",), (), MOST_IMAGES)
    assert (found.images[0].python, found.images[0].commands, found.images[1]) == (None, (), CPU)


def test_what_a_user_mounted_is_in_no_survey() -> None:
    """As sshfs and any program with FUSE can: the kind and the name of it are the user's choice."""
    line = "{} 21 0:{} / {} rw,nosuid - {} {} rw,user_id={},group_id=1000\n"
    text = MOUNTS
    for number, (path, kind, source, user) in enumerate((
        ("/home/mallory/m", "fuse.sshfs", "mallory@secret.example:/x", 1000),
        ("/home/mallory/line\\012end", "fuse.glusterfs", "h:/x", 1000),
        ("/home/mallory/other", "fuse.glusterfs", "h:\u2028/x", 1000),
        ("/srv/line\\012end", "fuse.glusterfs", "h:/x", 0),
        ("/srv/long", "fuse.glusterfs", "h:/" + "x" * MOST_CHARACTERS, 0),
        ("/srv/data", "fuse.glusterfs", "h:/data", 0),
        ("/srv/as-root", "fuse.sshfs", "root@h:/x", 0),
    ), 40):  # fmt: skip
        text += line.format(number, number, path, kind, source, user)
    found = network_mounts(text)
    assert found == {"/home": "nfs files:/export/home", "/srv/data": "fuse.glusterfs h:/data"}
    assert not is_shared(Path("/home/mallory/m/x"), found, text), "it is over the folder that both have"
    assert parse_offers({"mounts": found}) == Offers(mounts=found)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    (tmp_path / "host").mkdir()
    return FakeHost(folder=tmp_path / "host", slurm=FakeSlurm(node_text=node_text("gpu1") + node_text("gpu2")))


def test_nothing_is_submitted_for_a_program_that_no_server_can_run(host: FakeHost) -> None:
    servers = {name: {"address": f"10.78.1.{n}", "offers": json.loads(Offers(OWN, COMMANDS, images=(GPU,)).text())}
               for n, name in enumerate(("gpu1", "gpu2"), 13)}  # fmt: skip
    host.pool_conf.write_text(json.dumps({"servers": servers, "default_image": "pytorch"}))
    for n in (13, 14):
        host.network.routes[f"10.78.1.{n}"] = "10.78.1.12"
    Path("train.py").write_text("import pandas\n")
    for where in ("server", "auto"):
        with pytest.raises(LeaseError, match="has no pandas"):
            placement.place(host, RunRequest(("python3", "train.py"), where=where))  # type: ignore[arg-type]
    assert (host.slurm.submitted, [one for one in host.slurm.commands if one[0] == "srun"]) == ([], [])
    Path("train.py").write_text("import torch\n")
    request = RunRequest(("python3", "train.py"), LeaseWish())
    found = placement.place(host, request)
    lines: list[str] = []
    there = placement.plan_there(host, request, request.how_there(), lines.append, found.choice)
    assert (there.how.image, there.how.synced, there.program) == ("sha256:g", Path.cwd(), ("python3", "train.py"))
    assert len([found.told, *lines, "lease"]) <= 4
    assert there.framework == "PyTorch"
    assert [one for one in host.slurm.commands if one[0] == "srun"] == [], "no server had to be asked"


def test_what_this_machines_python_lacks_runs_on_a_server_that_has_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine for PyTorch is here, and the program's Python is not enough for it."""
    (host.engine_dir / "engine.json").write_text(json.dumps({"engine": "torch", "release": "r1", "torch": ["2.14"]}))
    offers = {"offers": json.loads(Offers(OWN, COMMANDS, images=(GPU,)).text())}
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": offers, "gpu2": offers}, "default_image": "pytorch"}))
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas("2.14.1"))
    Path("train.py").write_text("import torch\nimport numpy\n")
    request = RunRequest(("python3", "train.py"))
    for lacking, where, image in ((["numpy"], "server", "pytorch:latest"), ([], "client", "")):
        monkeypatch.setattr(
            placement, "absent_here", lambda all_of_it, _python, these=lacking: [o for o in all_of_it if o.top in these]
        )
        found = placement.place(host, request)
        assert (found.where, found.choice.image if found.choice else "") == (where, image)
        assert ("has no numpy (train.py:2)" in found.told) == bool(lacking)
    monkeypatch.setattr(placement, "absent_here", lambda all_of_it, _python: all_of_it[:1])
    for refused in (replace(request, where="client"), replace(request, wish=LeaseWish(engine="torch"))):
        with pytest.raises(LeaseError, match=r"has no torch \(train.py:1\); install it there"):
            placement.place(host, refused)
    Path("train.py").write_text("import torch\nimport pandas\n")
    with pytest.raises(
        LeaseError, match=r"can run neither here nor on the server: .*image pytorch:latest has no pandas"
    ):
        placement.place(host, request)
