"""The loop on a thread of its own, and the calls that other threads make."""
