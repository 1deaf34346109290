"""`python -m optpy` is the command `optpy`."""

from __future__ import annotations

from optpy.cli import main

main(prog_name="optpy")
