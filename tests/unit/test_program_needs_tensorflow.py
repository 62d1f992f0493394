"""Programs of TensorFlow: what shows that one is one, and which of them run here by the engine tensorflow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError
from toolkit.lease.before import program_needs
from toolkit.lease.before.program_needs import Needs, PythonHas, needs_of
from toolkit.lease.before.program_words import hides_engines
from toolkit.lease.client import placement
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.client.running import check_servers
from toolkit.lease.engines import BESIDE, installed
from toolkit.lease.lease_request import LeaseWish

KERAS = "import keras\nkeras.Sequential()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)


def needs(text: str, name: str = "train.py") -> Needs:
    Path(name).write_text(text)
    return needs_of([sys.executable, name])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import tensorflow as tf\n", "train.py:1 imports tensorflow"),
        ("from tensorflow.keras import layers\n", "train.py:1 imports tensorflow"),
        (KERAS, "train.py:1 imports keras, which works by TensorFlow"),
        ("import tensorflow_hub\n", "train.py:1 imports tensorflow_hub, which works by TensorFlow"),
        ("try:\n    import tensorflow\nexcept ImportError:\n    pass\n", "train.py:2 imports tensorflow"),
        ("import tensorflow as tf\ntf.compat.v1.logging.set_verbosity(1)\n", "train.py:1 imports tensorflow"),
    ],
)
def test_a_program_of_tensorflow_is_known_by_what_it_imports(text: str, why: str) -> None:
    found = needs(text)
    assert (found.kind, found.why, found.tensorflow, found.torch) == ("tensorflow", why, True, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import tensorflow as tf\ns = tf.distribute.MirroredStrategy()\n",
            "train.py:2 uses tensorflow.distribute.Mir",
        ),
        ("import tensorflow as tf\ntf.compat.v1.Session()\n", "is of TensorFlow 1, whose sessions compute where"),
        ("import tensorflow.compat.v1 as tf\ntf.Session()\n", "is of TensorFlow 1, whose sessions compute where"),
        ("import tensorflow as tf\ntf.load_op_library('x.so')\n", "which loads operators of its own"),
        ("import tensorflow as tf\ntf.config.experimental_connect_to_host('x')\n", "which has servers of its own"),
        ("import tensorflow\nimport torch\n", "train.py:2 imports torch, and train.py:1 imports tensorflow"),
        ("import tensorflow\nimport jax\n", "train.py:2 imports jax, another framework"),
    ],
)
def test_what_of_tensorflow_belongs_to_the_server_is_told(text: str, words: str) -> None:
    found = needs(text)
    assert found.kind == "runtime"
    assert words in found.why


def test_keras_is_of_the_framework_that_it_is_told_to_work_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert (needs(KERAS).kind, "works by JAX" in needs(KERAS).why) == ("runtime", True)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert needs(KERAS).kind == "unknown"
    assert needs("import torch\n" + KERAS).kind == "torch"


def test_a_program_of_pytorch_that_looks_for_tensorflow_is_one_of_pytorch() -> None:
    assert needs("import torch\ntry:\n    import tensorflow_datasets\nexcept ImportError:\n    pass\n").kind == "torch"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    (tmp_path / "current").mkdir()
    found = FakeHost(folder=tmp_path / "current")
    (found.engine_dir / "engine.json").write_text(json.dumps({"engine": "reference", "release": "1"}))
    for name, minors in (("torch", ["2.13"]), ("tensorflow", ["2.21"])):
        folder = found.engine_dir.parent / BESIDE / name / "current"
        folder.mkdir(parents=True)
        (folder / "engine.json").write_text(json.dumps({"engine": name, "release": "1", name: minors}))
    return found


def chosen(
    host: FakeHost, text: str, monkeypatch: pytest.MonkeyPatch, has: str = "2.21.0", **options: object
) -> placement.Placement:
    Path("train.py").write_text(text)
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas(tensorflow=has))
    monkeypatch.setattr(program_needs, "ask_python", lambda _python, _names=(): PythonHas(tensorflow=has))
    monkeypatch.setattr(placement, "absent_here", lambda _imports, _python: [])
    wish = LeaseWish(engine=str(options.pop("engine", "")))
    return placement.place(host, RunRequest((sys.executable, "train.py"), wish, **options))  # type: ignore[arg-type]


def test_the_engine_is_told_in_one_line(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(host, "import tensorflow\n", monkeypatch)
    assert (found.where, found.engine) == ("client", "tensorflow")
    assert found.told.endswith("runs here, its GPUs by the engine tensorflow: train.py:1 imports tensorflow")
    assert installed(host.engine_dir, "tensorflow").minors == ("2.21",)
    plain = chosen(host, "print(1)\n", monkeypatch)
    assert (
        "nothing shows that it imports PyTorch or TensorFlow (if it does: --engine torch or tensorflow)" in plain.told
    )
    assert chosen(host, "print(1)\n", monkeypatch, engine="tensorflow").engine == "tensorflow", "by hand"
    there = chosen(host, "import jax\n", monkeypatch)
    assert (there.where, "imports jax, another framework, for which no engine" in there.told) == ("server", True)


@pytest.mark.parametrize("engine", ["", "tensorflow"])
def test_no_tensorflow_and_one_of_another_release_are_refused_before_the_start(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    for has, words in (
        ("", r"has no TensorFlow, .*install tensorflow 2.21.\* there .*--where server"),
        ("2.20.0", r"has TensorFlow 2.20.0, and the engine here knows 2.21.\*; install that"),
        ("2.210.0", r"has TensorFlow 2.210.0, and"),
    ):
        with pytest.raises(LeaseError, match=words):
            chosen(host, "import tensorflow\n", monkeypatch, has, engine=engine)


def test_an_engine_of_another_framework_is_not_given_it(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, text in (
        ("torch", "import tensorflow\n"),
        ("tensorflow", "import torch\n"),
        ("tensorflow", "import jax\n"),
    ):
        with pytest.raises(LeaseError, match=rf"the engine here \({engine}\) is not enough"):
            chosen(host, text, monkeypatch, engine=engine)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("-I", "train.py"), "-I"),
        (("-uE", "train.py"), "-E"),
        (("-X", "dev", "-I", "-m", "train"), "-I"),
        (("train.py", "-I"), ""),
        (("-X", "Importtime", "train.py"), ""),
        (("-Wignore", "train.py"), ""),
        (("-c", "import tensorflow", "-I"), ""),
        (("-s", "train.py"), ""),
    ],
)
def test_a_python_that_would_not_find_the_engine_is_refused(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], option: str
) -> None:
    assert hides_engines([sys.executable, *words]) == option
    assert hides_engines(["env", "A=1", sys.executable, *words]) == option
    chosen(host, "import tensorflow\n", monkeypatch)
    request = RunRequest((sys.executable, *words), LeaseWish(engine="tensorflow"))
    if option:
        with pytest.raises(LeaseError, match=f"^{option} keeps .* from reading PYTHONPATH.* leave {option} out"):
            placement.place(host, request)
    else:
        assert placement.place(host, request).engine == "tensorflow"


def test_gpus_of_several_servers_are_refused(host: FakeHost) -> None:
    check_servers(host, 1, "tensorflow")
    with pytest.raises(LeaseError, match="engine tensorflow joins at most 1 server in one program, this lease has 2"):
        check_servers(host, 2, "tensorflow")
