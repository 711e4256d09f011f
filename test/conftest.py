"""Settings of all tests."""

import signal

from hypothesis import settings

# A busy machine is slow: no test fails for that.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Who is started in the background of a script does not hear Ctrl-C, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
