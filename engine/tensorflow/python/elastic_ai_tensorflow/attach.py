"""What of TensorFlow is told where a program's GPUs are, when it has been imported.

TensorFlow's own distributed runtime does the work. Told are: the server, when its context is made; the default device
of each thread, which is the server; the devices that a program asks for; and (module placing) what stays here. Names of
TensorFlow 2.21: `attach` refuses another release rather than let a program compute here without a word.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from elastic_ai_tensorflow import devices, placing
from elastic_ai_tensorflow.lease import CLIENT_ADDRESS, PORT, SERVER_ADDRESS, Lease, LeaseFault
from elastic_ai_tensorflow.session import Session

#: Minor releases whose names these are.
KNOWN = ("2.21",)


class LeaseError(RuntimeError):
    """The program's TensorFlow cannot have the lease's GPUs; the text is a sentence."""


def attach(tensorflow: ModuleType) -> None:
    """After `import tensorflow`. ImportError with a sentence where this release is not known."""
    version = str(tensorflow.__version__)
    if ".".join(version.split(".")[:2]) not in KNOWN:
        raise ImportError(
            f"this is TensorFlow {version}, and the engine tensorflow knows {' and '.join(KNOWN)}; install "
            f"tensorflow {KNOWN[-1]}.* for the program, or run it by --where server"
        )
    try:
        lease = Lease.of()
    except LeaseFault as fault:
        raise ImportError(str(fault)) from None
    if not lease.emulated and not tensorflow.test.is_built_with_cuda():
        raise ImportError(
            "this is tensorflow-cpu, which knows no operators of GPUs, so TensorFlow would place a model on the "
            f"processor of the lease's server; install tensorflow {KNOWN[-1]}.* for the program (it needs no GPU here)"
        )
    session = Session(lease)
    _make_contexts_remote(session, version)
    _refuse_graph_sessions()
    devices.show(tensorflow, lease)
    placing.keep_here(tensorflow)


def _make_contexts_remote(session: Session, version: str) -> None:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import device as names

    there = placing.default_device(session.lease)
    worker = names.DeviceSpec.from_string(there)
    before = context.Context.ensure_initialized

    stands = threading.local()

    def stand_there(ctx: Any) -> None:
        """This thread's operators go to the server where the program says nothing else. Threads that TensorFlow made
        run Python functions of datasets, which are the client's."""
        if not getattr(stands, "there", False) and not isinstance(threading.current_thread(), threading._DummyThread):
            stands.there = True
            if not ctx.device_name:
                ctx._set_device(there, worker)

    def ensure_initialized(self: Any) -> None:
        if not self._initialized:
            if self._server_def is None:
                try:
                    session.begin(version)
                except LeaseFault as fault:
                    raise LeaseError(f"elastic-ai: {fault}") from None
                self._server_def = _server_definition(self)
            elif self._server_def.job_name != "localhost" or not _is_ours(self._server_def):
                raise LeaseError(
                    "elastic-ai: this program connects TensorFlow to servers of its own, so its lease's GPUs cannot be "
                    "given to it here; run it by --where server"
                )
            before(self)
        stand_there(self)

    context.Context.ensure_initialized = ensure_initialized
    stand_there(context.context())
    run = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin_there(self: threading.Thread) -> None:
        stands.there = True  # before it is known by its own name
        context.context()._set_device(there, worker)
        run(self)

    threading.Thread._bootstrap_inner = begin_there  # type: ignore[attr-defined]


def _is_ours(definition: Any) -> bool:
    return any(
        address == f"{SERVER_ADDRESS}:{PORT}" for job in definition.cluster.job for address in job.tasks.values()
    )


def _server_definition(ctx: Any) -> Any:
    from tensorflow.core.protobuf.tensorflow_server_pb2 import ServerDef
    from tensorflow.python.training.server_lib import ClusterSpec

    cluster = ClusterSpec({"worker": {0: f"{SERVER_ADDRESS}:{PORT}"}, "localhost": {0: f"{CLIENT_ADDRESS}:{PORT}"}})
    return ServerDef(
        cluster=cluster.as_cluster_def(), job_name="localhost", task_index=0, protocol="grpc",
        default_session_config=ctx.config,
    )  # fmt: skip


def _refuse_graph_sessions() -> None:
    """A session of TensorFlow 1 would compute on this machine."""
    from tensorflow.python.client import session as sessions

    before = sessions.BaseSession.__init__

    def start(self: Any, target: Any = "", *more: Any, **named: Any) -> None:
        if not target:
            self._session = None  # its __del__ asks
            raise LeaseError(
                "elastic-ai: sessions of TensorFlow 1 (tf.compat.v1.Session) would compute on this machine's "
                "processor; run the program by --where server"
            )
        before(self, target, *more, **named)

    sessions.BaseSession.__init__ = start
