"""Requests against a pool of recordings."""

from __future__ import annotations

from tests.support.lease_texts import node_text

POOL = node_text("gpu1", "IDLE") + node_text("gpu2", "IDLE")
