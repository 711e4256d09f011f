"""Settings of all tests."""

from hypothesis import settings

# A busy machine is slow: no test fails for that.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
