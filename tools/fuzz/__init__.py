"""Random inputs for all that reads what others wrote: files, recordings, messages, HTTP, plans.

`targets` says what is read and how it may refuse; `served` has the plans that reports and
cancellations reach; `mutations` makes inputs from a kept corpus;
`python -m tools.fuzz` tries them and prints what broke.
"""
