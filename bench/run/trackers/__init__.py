"""Experiment trackers: a run for each cell and each report. What goes wrong with a tracker never stops a command."""
