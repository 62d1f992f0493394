"""What a whole fabric does: path MTU, loads of switches, traffic beside a burn-in; suite transport."""
