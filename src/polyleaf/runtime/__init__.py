"""Threads, devices and communication between processes."""
