"""What switches are configured for lossless RoCE: read, held against the hosts' own variables, and written."""
