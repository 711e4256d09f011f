"""The tests: a package, because an installed Python may have another one of this name."""
