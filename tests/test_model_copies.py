"""A model can be copied and pickled, and the copy has no hooks."""

import copy
import pickle

import pytest
import torch

import interp

CONFIG = interp.TransformerConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=7, n_ctx=5)
TOKENS = torch.tensor([[1, 2, 3]])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_made_inside_a_block_of_hooks_computes_without_them(duplicate):
    model = interp.Transformer(CONFIG)
    clean = model(TOKENS)
    with model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        twin = duplicate(model)
        assert not torch.equal(model(TOKENS), clean)
        assert torch.equal(twin(TOKENS), clean)
    assert torch.equal(twin(TOKENS), clean)


def test_a_copy_shares_no_weights():
    model = interp.Transformer(CONFIG)
    clean = model(TOKENS)
    twin = copy.deepcopy(model)
    twin.blocks[0].attn.W_O[:] = 0
    assert torch.equal(model(TOKENS), clean)
    assert not torch.equal(twin(TOKENS), clean)
