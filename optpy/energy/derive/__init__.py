"""The routines that follow from an energy."""
