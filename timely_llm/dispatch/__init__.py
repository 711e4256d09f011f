"""Dispatch: which of several servers serves a request.

Here belong what a server says of its load, the rules that assign requests to servers, the record of
what was sent where, and the front that decides what is sent next. It has no clock and no I/O:
messages and time belong to its callers.
"""
