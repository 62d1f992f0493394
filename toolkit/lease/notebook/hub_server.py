"""A notebook server of JupyterHub's, in the environment's Python: JupyterHub's own server, and what happens to the
lease, reported in the notebooks.

Like module server, whose parts it uses, it imports nothing of the toolkit's. Its order is a file that its user alone
can read. It listens at 127.0.0.1 with TLS: nobody who took its port would be believed by the hub's proxy.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

FILES = {"KEYFILE": "key.pem", "CERTFILE": "certificate.pem", "CLIENT_CA": "authority.pem"}


def free_port() -> int:
    """One that nobody has now; the server takes a later one where it was taken meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def environment(variables: str, folder: Path, port: int) -> dict[str, str]:
    """JupyterHub's variables, as its server wants them here. variables: those of the hub, NAME=value, one a line."""
    given = dict(variable.partition("=")[::2] for variable in variables.splitlines())
    return {
        **given,
        "JUPYTERHUB_SERVICE_URL": f"https://127.0.0.1:{port}{given.get('JUPYTERHUB_SERVICE_PREFIX', '/')}",
        **{f"JUPYTERHUB_SSL_{key}": str(folder / name) for key, name in FILES.items()},
    }


def arguments() -> list[str]:
    """Jupyter's, which go before what the user's own configuration has."""
    return [
        f"--ServerApp.root_dir={Path.home()}",
        "--ServerApp.log_level=WARN",
        "--Application.log_level=WARN",
        "--KernelManager.transport=ipc",
        "--ServerApp.open_browser=False",
    ]


def listens(app: Any, folder: Path) -> None:
    """Write its port, for `look`; in one step, so that no half of it is read."""
    new = folder / "port.new"
    new.write_text(str(app.port))
    new.replace(folder / "port")


def serve(path: Path) -> None:
    """Until it is ended by a signal; kernels are gone then."""
    server = importlib.import_module("server")
    order = json.loads(path.read_text())
    sys.path[:1] = []  # the toolkit's own folder
    os.environ.update(environment(order["variables"], Path(order["folder"]), free_port()))
    os.environ["JUPYTER_RUNTIME_DIR"] = runtime = server.short_folder()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # of the lease's end: the reason is in the announcer's file
    try:
        starter = importlib.import_module("jupyterhub.singleuser.extension").JupyterHubSingleUser
        app = starter.initialize_server(argv=arguments())
        ioloop = importlib.import_module("tornado.ioloop")
        ioloop.PeriodicCallback(server.listen_to_cells(server.Announcer(order)), server.LOOK_MS).start()
        ioloop.IOLoop.current().add_callback(listens, app, Path(order["folder"]))
        app.start()
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
