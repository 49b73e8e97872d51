"""Run → diagnosis: plain functions, each from one noun to the next. Needs no torch."""
