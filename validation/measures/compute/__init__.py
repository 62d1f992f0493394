"""What GPUs and processors compute: rates, exact products, burn-in."""
