"""The contracts of policies and engines as checks, for ours and for those of users.

A check is a function with a name and one promise. The package's own tests call the same functions.
A new promise of a contract becomes a function in the folder of that contract.
"""
