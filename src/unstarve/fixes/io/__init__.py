"""Readers and file formats: native, with a fallback."""
