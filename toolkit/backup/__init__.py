"""A head's backup: how the file is made, read and tried, and how another head takes it up."""
