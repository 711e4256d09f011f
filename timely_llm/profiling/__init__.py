"""Measured durations of skills and step times of engines, and the models fitted to them.

Code that turns measurements into a skill set's durations or a step-time profile belongs here.
"""
