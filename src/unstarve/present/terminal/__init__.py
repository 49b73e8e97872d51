"""What a person reads in a terminal: reports, tables, the live view. Fits 80 columns."""
