"""The one decider of what is stored and how: linearised residuals and their routines to an ``ir.Schedule``."""
