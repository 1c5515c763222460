"""Acceptance rules, each a class; a class in a file of this folder is an option `rule=`."""
