"""The virtual lab: systemd nodes on a bridge of their own, on one plain Linux machine."""
