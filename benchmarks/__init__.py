"""Speed and memory of `interp` against its peers, measured side by side in one run."""
