"""Bytes that no one meant as a file, fed to the way of the command line by coverage: `python -m tests.fuzz`."""
