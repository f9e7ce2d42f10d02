"""Device without a GPU: the CUDA driver and all kernels, compiled for this machine.

With `POLYLEAF_GPU=1` in the environment the GPU of this machine is used, for `scripts/check_gpu`.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from polyleaf import _core
from polyleaf.runtime import cuda
from support.core_settings import grow_config, make_leaf_config
from support.problems import as_reference_tree, core_bins

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "device"
COMPILER = os.environ.get("CXX") or shutil.which("g++")
FLAGS = [
    "-std=gnu++20",
    "-O2",
    "-shared",
    "-fPIC",
    "-ffp-contract=off",
    "-Wall",
    "-Wno-unknown-pragmas",
]

_get_gpu = cuda._get_cuda_device  # saved before a test replaces it


@cache
def library():
    """Return the path of the library, and build it if it does not exist."""
    files = [*SOURCES.glob("*"), *(ROOT / "cpp").rglob("*.cu"), *(ROOT / "cpp").rglob("*.h")]
    text = b"".join(
        path.read_bytes() for path in sorted(files) if path.suffix in (".h", ".cpp", ".cu")
    )
    folder = Path(tempfile.gettempdir()) / f"polyleaf-driver-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    built = folder / f"driver-{hashlib.sha256(text + ' '.join(FLAGS).encode()).hexdigest()[:16]}.so"
    if not built.exists():
        own = built.with_suffix(f".{os.getpid()}")
        include = [
            f"-I{ROOT / 'cpp' / 'device' / 'scalar_simd_shim'}",
            f"-I{SOURCES}",
            f"-I{ROOT / 'cpp'}",
        ]
        source = str(SOURCES / "driver_on_host.cpp")
        subprocess.run([COMPILER, *FLAGS, *include, source, "-o", str(own)], check=True)
        own.replace(built)
    return str(built)


@cache
def device():
    """Return the device with its kernels."""
    if os.environ.get("POLYLEAF_GPU"):
        return _get_gpu()
    found = _core.Device(library(), 0)
    found.load(b"the kernels are in the driver")
    return found


def use(monkeypatch):
    """Make `device="cuda"` use this device."""
    monkeypatch.setattr(cuda, "_get_cuda_device", device)


class DeviceCore:
    """Core on this device, with the interface of `problems.Core` and `problems.Reference`."""

    def __init__(self, p):
        self.problem = p
        self.bins = _core.DeviceBins(device(), core_bins(p.codes, p.n_bins, p.is_categorical))
        self.g, self.h = send(p.g), None if p.h is None else send(p.h)
        self.channels = _core.DeviceQuantisedGradients(device())
        self.channels.quantise(self.g, self.h, p.kind, p.rows, p.multiplier)
        self.grower = _core.Grower(self.bins, 1)
        self.leaves = _core.DeviceLeaves(device())

    def dense(self):
        """Return int16 (n_used, K and Hessian channels), as `_core.QuantisedGradients.dense`."""
        width = self.problem.g.shape[1] + (0 if self.problem.h is None else self.problem.h.shape[1])
        return self.channels.read()[self.problem.rows_in_use, :width]

    def grow(self, **only_core):
        """Return the tree, and the leaf id of every row, in the sample or not."""
        return as_reference_tree(self.grow_in_core(**only_core)), np.array(self.grower.leaf_of_row)

    def grow_in_core(self, **only_core):
        """Return the tree as a core object."""
        p, search = self.problem, _core.DeviceSearch(self.bins, 1)
        search.use(self.channels)
        search.set_monotone_constraints(p.directions)
        self.grower.set_interaction_constraints(p.groups, p.at_most)
        return self.grower.grow(search, grow_config(p.config, **only_core), p.features)

    def values(self, n_leaves, learning_rate=1.0):
        """Return the leaf values of the grown tree."""
        step, p = make_leaf_config(self.problem.config, learning_rate), self.problem
        return self.leaves.newton(self.g, self.h, self.grower, n_leaves, step, p.rows, p.multiplier)

    def topk(self, learning_rate=1.0):
        """Return the sparse leaves of the grown tree."""
        p, c = self.problem, self.problem.config
        tree = self.grow_in_core()
        kept = c.leaf_k, tree if c.shared_support else None, make_leaf_config(c, learning_rate)
        data = self.g, self.h, self.grower, tree.n_leaves
        return self.leaves.topk(*data, *kept, p.rows, p.multiplier)


def send(values):
    """Copy a float32 matrix to the device."""
    matrix = _core.DeviceMatrix(device(), *values.shape)
    matrix.write(np.ascontiguousarray(values, np.float32))
    return matrix
