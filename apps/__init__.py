"""The dashboard: what `interp dashboard` opens."""
