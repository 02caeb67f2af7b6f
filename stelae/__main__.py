"""`python -m stelae`: the command line."""

from stelae.cli import main

main()
