"""The command line: parse, call `client`, print; one file per verb."""
