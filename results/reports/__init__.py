"""Tables and pages from numbers."""
