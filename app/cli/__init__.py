"""The command line: `python -m app COMMAND`. A file for each group of commands, and what all of them begin with."""
