"""Devices that training may run on: which there is, and the program it runs. See docs/gpu.md."""
