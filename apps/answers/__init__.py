"""Questions to an opened model, each a function that calls `interp`; `state` keeps the answers."""
