"""What `attention_claims.py` measures, by subject."""
