"""Count, time and search: the commands, and the packages that they share."""
