import subprocess
import sys


def test_import_loads_none_of_what_loads_where_it_is_used():
    heavy = ["transformers", "transformer_lens", "streamlit", "pandas", "plotly"]
    code = f"import sys, interp; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
