"""Diagnosis → what a person or a program reads. Nothing is computed here."""
