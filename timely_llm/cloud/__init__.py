"""Cloud: a large model far away, asked for sketches and answers.

Here belong the contract of a cloud, its HTTP client, the simulated cloud, and the words with which
a cloud is asked. Nothing here decides whether a cloud is asked: that belongs in `progressive`.
"""
