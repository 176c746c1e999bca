"""Small models of the standard library's bytes: training, and what is measured on them."""
