"""Diagnosis → advice: what to change, what it is predicted to gain, and the line to write."""
