"""How a site is, from one look: `toolkit status`."""
