"""Stand-ins for the hub, its data and the judge, and a report run whole on them."""
