"""The papers' evaluations, in virtual and in real time."""
