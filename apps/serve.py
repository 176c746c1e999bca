"""Starts streamlit, and loads meanwhile what the first page needs: `python -m apps.serve run …`.

Streamlit imports a page's modules when the first reader asks for it. By then the browser has
been waiting for torch and plotly; here they are loaded while the browser starts.
"""

import importlib
from threading import Thread

from streamlit.web import cli

NEEDED = (
    "torch", "pandas", "plotly.graph_objects", "plotly.io", "interp.plots", "interp.ablation",
    "interp.circuits", "interp.dynamics", "interp.patching", "interp.lens", "interp.interop",
)  # fmt: skip


def load() -> None:
    """Import what takes long."""
    for name in NEEDED:
        importlib.import_module(name)


def main() -> None:
    """Serve, as `streamlit` does."""
    Thread(target=load, daemon=True).start()
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
