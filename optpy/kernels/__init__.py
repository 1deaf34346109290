"""Routine to C source to shared library to callable kernel."""
