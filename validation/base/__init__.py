"""What everything else may use: errors, limits, files, text. Standard library and PyYAML; some of it runs on nodes."""
