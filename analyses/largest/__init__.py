"""The class of the largest item: a head that must be sharp, at any length."""
