"""Users' data, checked against an energy and made ready for solvers."""
