"""`python -m stelae`: the command line.

`-m` puts the working folder first on Python's path. That folder is the user's: a `json.py` there must not become ours.
"""

# ruff: noqa: PTH100, PTH109, PTH120
# (pathlib would itself be imported from the path that is put right here; os is loaded anyway)

import os
import sys


def leave_out_working_folder() -> None:
    """Take the entry that `-m` made off the path, unless stelae itself is found there: in a checkout."""
    here = os.path.realpath(os.getcwd())
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # With -P and PYTHONSAFEPATH `-m` makes no entry.
    if not sys.flags.safe_path and os.path.realpath(sys.path[0] or ".") == here != os.path.realpath(home):
        del sys.path[0]


if __name__ == "__main__":
    leave_out_working_folder()

    from stelae.cli import main

    main()
