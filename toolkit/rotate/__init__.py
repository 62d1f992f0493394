"""Keys that all machines of a site share, exchanged for new ones while jobs run."""
