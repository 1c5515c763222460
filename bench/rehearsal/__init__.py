"""`report=NAME rehearse=true`: a report whole, with tiny random models in the hub's formats."""
