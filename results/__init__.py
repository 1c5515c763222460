"""What was measured: files on disk (store), numbers from them (metrics), tables and pages
(reports)."""
