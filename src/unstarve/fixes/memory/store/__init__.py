"""The samples of a dataset in one region that many processes read and fill."""
