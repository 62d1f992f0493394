"""JupyterHub's spawner over the pool: a notebook server is a detached program of its user's, with a lease.

The hub's user calls three programs as the notebooks' user by sudo (module toolkit.lease.notebook.hub). Token and key go
to them on standard input: they are in no argument list and in no log.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from choices import NotOffered, Offer, checked, of_form, page
from jupyterhub.spawner import Spawner
from programs import NotStarted, call
from traitlets import Instance, Unicode

LOOK_S = 1.0


class PoolSpawner(Spawner):
    """One notebook server of a user."""

    offer = Instance(Offer, config=True, help="What users choose from.")
    name_there = Unicode(help="The server's name in its user's folder, empty where there is none.")

    async def call(self, program: str, *words: str, text: str = "") -> dict[str, Any]:
        """What one of the three programs answers, as this server's user. NotStarted with its sentence."""
        return await call(self.user.name, program, *words, text=text)

    def _options_form_default(self) -> str:
        return page(self.offer)

    def options_from_form(self, form_data: dict[str, list[str]]) -> dict[str, object]:
        """Checked here already, so that the form is shown again with the sentence."""
        return checked(self.offer, of_form(form_data)).options()

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """They stay; their texts go to the user's own folder with the order."""
        return paths

    def order(self) -> str:
        """For `start`. NotStarted where the choice is none that is offered: over REST it was not a form's."""
        try:
            choice = checked(self.offer, self.user_options or {})
        except NotOffered as fault:
            raise NotStarted(str(fault)) from None
        given = {key: str(value) for key, value in self.get_env().items()}
        lines = [f"{key}={value}\n" for key, value in given.items() if re.fullmatch("JUPYTERHUB_[A-Z_]+", key)]
        return json.dumps(
            {
                "environment": choice.environment,
                "count": choice.gpus,
                "part": choice.part,
                "gpu_class": choice.gpu_class,
                "seconds": choice.hours * 3600,
                "variables": "".join(line for line in lines if line.count("\n") == 1),
                "key": Path(self.cert_paths["keyfile"]).read_text(),
                "certificate": Path(self.cert_paths["certfile"]).read_text(),
                "authority": Path(self.cert_paths["cafile"]).read_text(),
            }
        )

    async def start(self) -> str:
        """Its URL, as soon as it listens; until then its user reads where it is in the queue."""
        self.news = "requests GPUs of the pool"
        self.name_there = (await self.call("start", text=self.order()))["name"]
        # A hub that ends now leaves it to the next one, which ends it: nobody would find it, and it would hold GPUs.
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()
        while True:
            seen = await self.call("look", self.name_there)
            if seen["state"] == "ended":
                raise NotStarted(
                    seen["why"] or f"the notebook server ended: toolkit logs {seen['lease']} has the reason"
                )
            if seen["port"]:
                return f"https://127.0.0.1:{seen['port']}"
            self.news = _words(seen)
            await asyncio.sleep(LOOK_S)

    async def progress(self) -> AsyncIterator[dict[str, object]]:
        """For the page that waits."""
        shown = ""
        while True:
            news = getattr(self, "news", "")
            if news != shown:
                shown = news
                yield {"progress": 50 if "queue" in news else 80, "message": news}
            await asyncio.sleep(LOOK_S)

    async def poll(self) -> int | None:
        """None while it goes on. One that waits for its turn is followed by `start` alone, so an earlier hub asked for
        it."""
        if not self.name_there:
            return 0
        try:
            seen = await self.call("look", self.name_there)
        except NotStarted as fault:
            self.log.warning("%s: %s", self.user.name, fault)
            return None  # nobody knows: it is left alone
        return None if seen["port"] else 0

    async def stop(self, now: bool = False) -> None:
        """It gives its GPUs back."""
        if self.name_there:
            await self.call("end", self.name_there)

    def get_state(self) -> dict[str, Any]:
        """What the next hub needs."""
        return {**super().get_state(), "name_there": self.name_there}

    def load_state(self, state: dict[str, Any]) -> None:
        """Of an earlier hub."""
        super().load_state(state)
        self.name_there = state.get("name_there", "")

    def clear_state(self) -> None:
        """It has ended."""
        super().clear_state()
        self.name_there = ""


def _words(seen: dict[str, Any]) -> str:
    if seen["state"] != "waiting":
        return f"lease {seen['lease']}: starts the notebook server"
    words = f"lease {seen['lease']}: waits in the queue"
    words += f", place {seen['place']}" if seen["place"] else ""
    return words + (f", expected {seen['expected']}" if seen["expected"] else "")
