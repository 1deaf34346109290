"""The diagonal of J^T J, or its blocks, as a preconditioner."""
