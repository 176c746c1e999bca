"""The dashboard: `interp dashboard` serves `dashboard.py`."""
