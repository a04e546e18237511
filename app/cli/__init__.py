"""The command line: `epsilond COMMAND`. A file for each group of commands, and what several of them use."""
