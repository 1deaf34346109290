"""Passes over the loop IR: from a routine's kernel to functions whose every record has one spelling."""
