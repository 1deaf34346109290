"""``op.compile``, ``op.solve``, sessions: what ties the rooms together."""
