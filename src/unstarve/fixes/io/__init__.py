"""Readers of files and file formats: native, with a fallback."""
