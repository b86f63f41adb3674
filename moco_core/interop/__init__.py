"""Vectors from elsewhere become runs."""
