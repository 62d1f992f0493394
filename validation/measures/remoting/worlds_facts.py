"""Facts of one training on several GPUs in several places (kinds remoting-scale, remoting-layout)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once


class World(Model):
    """One job of elastic-ai-train. images_per_s: of each step but the first, which pays for what is done once. losses:
    of each step. weights_sha256: of the weights at its end.
    """

    name: Name
    turn: Count
    gpus: Count = Field(ge=1)
    images_per_s: tuple[Positive, ...] = Field(min_length=1)
    losses: tuple[Positive, ...] = Field(min_length=2)
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class WorldsFacts(Remoting):
    """Jobs in the order in which they ran. batch: images of a step on each GPU. client: where the program ran."""

    type: Literal["remote-worlds"] = "remote-worlds"
    client: Name
    servers: tuple[Name, ...] = Field(min_length=1)
    device: Name
    batch: Count = Field(ge=1)
    inputs: Count
    hidden: Count
    steps: Count = Field(ge=2)
    worlds: tuple[World, ...] = Field(min_length=1)

    @field_validator("worlds")
    @classmethod
    def _worlds_once(cls, worlds: tuple[World, ...]) -> tuple[World, ...]:
        return once(worlds, "name", "turn")

    def names(self) -> tuple[str, ...]:
        """Each name once, in the order of the first turn."""
        return tuple(dict.fromkeys(world.name for world in self.worlds))

    def of(self, name: str) -> list[World]:
        """The jobs of that name."""
        return [world for world in self.worlds if world.name == name]

    def differing(self) -> list[str]:
        """The jobs that computed something else than the first on as many GPUs, in words: these share each batch in the
        same way, wherever they are."""
        first: dict[int, World] = {}
        found = []
        for world in self.worlds:
            known = first.setdefault(world.gpus, world)
            if (world.losses, world.weights_sha256) != (known.losses, known.weights_sha256):
                found.append(f"turn {world.turn}, {world.name}")
        return found
