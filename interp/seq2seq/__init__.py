"""An encoder–decoder transformer: self-, masked self- and cross-attention, all of it hookable.

Source: Vaswani et al. 2017, "Attention Is All You Need", with norms before each part (as GPT-2
does) in place of after.
"""

from interp.seq2seq.architecture import Seq2SeqConfig, seq2seq_names
from interp.seq2seq.cache import Seq2SeqCache
from interp.seq2seq.transformer import Seq2SeqTransformer

__all__ = ["Seq2SeqCache", "Seq2SeqConfig", "Seq2SeqTransformer", "seq2seq_names"]
