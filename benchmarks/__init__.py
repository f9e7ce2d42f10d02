"""Benchmarks of Polyleaf alone, for airspeed velocity: `asv continuous main HEAD`.

They compare commits on generated data, on one thread. `experiments/` compares with other
libraries. A benchmark is a method `time_*`, `peakmem_*` or `track_*`; asv calls `setup` before it.
"""
