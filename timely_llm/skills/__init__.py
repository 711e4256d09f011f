"""Skill sets, plan language, stop checkers and the execution-time model.

What a robot can do and how its plans are read belongs here. A new plan language is a stop checker
and a line in `checkers.py`. A new field of skill sets goes into `skill_set.py`, one of skills into
`skill.py`.
"""
