"""Corpus, training and evaluation of the embedded language model."""
