"""Interactive demos: energies of problems/ solved while one drags."""
