"""Policies decide each step: who takes part, with how many tokens."""
