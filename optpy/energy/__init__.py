"""What users write, and the routines that follow from it."""
