"""The script that follows all heads to long sequences."""

import json
from pathlib import Path

import pytest

from analyses import long_context_heads
from interp import Transformer, TransformerConfig

SHIPPED = Path(__file__).parents[1] / "apps" / "models" / "induction"


def test_it_writes_scores_and_costs_at_each_length(tmp_path):
    long_context_heads.main(tmp_path, run=SHIPPED, longest=128)
    numbers = json.loads((tmp_path / "long_context_heads.json").read_text())
    assert numbers["lengths"] == [64, 128]
    first, second = (max(m["scores"]["induction"][1]) for m in numbers["measured"])
    assert first > 0.8  # at the length of its training
    assert second < first  # beyond it
    assert all(m["bytes"] > 1e8 and m["seconds"] > 0 for m in numbers["measured"])
    page = (tmp_path / "long_context_heads.html").read_text()
    assert "Do heads keep their jobs" in page


def test_learned_positions_are_refused():
    config = TransformerConfig(n_layers=1, n_heads=1, d_model=8, d_vocab=8, n_ctx=8)
    with pytest.raises(ValueError, match="learned positions end at 8"):
        long_context_heads.stretched(Transformer(config), 16)
