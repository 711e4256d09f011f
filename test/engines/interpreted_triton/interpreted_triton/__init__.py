"""A backend of Triton for CPUs that compiles nothing: with TRITON_INTERPRET=1 none is asked.

Triton's interpreter runs kernels on a CPU, but vLLM's build for CPUs takes Triton only with a
backend named cpu. With the folder around this package in PYTHONPATH, Triton finds this one.
"""
