"""Memory, tables and calls of compiled programs at run time."""
