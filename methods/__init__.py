"""Methods: drafters x acceptance rules on one decode loop. Knows nothing of tasks, cells or
reports."""
