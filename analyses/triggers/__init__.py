"""Triggers whose outputs differ by sequence, and the memories that recall them."""
