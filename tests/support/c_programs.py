"""Functions from exported C headers, compiled by each available compiler."""

import ctypes
import shutil
import subprocess

import numpy as np

_CLANGS = ("clang", *(f"clang-{version}" for version in range(40, 10, -1)))
COMPILERS = [
    name
    for name in ("gcc", next(filter(shutil.which, _CLANGS), None))
    if name is not None and shutil.which(name)
]
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")

_PROGRAM = """
#include "{name}.h"
void raw_of(const {name}_input *x, double *out, long n);
void predictions_of(const {name}_input *x, double *out, long n);
void classes_of(const {name}_input *x, int *out, long n);
int n_predictions(void) {{ return {name}_N_PREDICTIONS; }}
void raw_of(const {name}_input *x, double *out, long n) {{
  long r;
  for (r = 0; r < n; ++r) {name}_raw(x + r * {name}_N_FEATURES, out + r * {name}_N_OUTPUTS);
}}
#if {name}_N_PREDICTIONS > 0
void predictions_of(const {name}_input *x, double *out, long n) {{
  long r;
  for (r = 0; r < n; ++r) {name}_predict(x + r * {name}_N_FEATURES, out + r * {name}_N_PREDICTIONS);
}}
#endif
#if {has_class}
void classes_of(const {name}_input *x, int *out, long n) {{
  long r;
  for (r = 0; r < n; ++r) out[r] = {name}_class(x + r * {name}_N_FEATURES);
}}
#endif
"""


class CProgram:
    """Compiled header in `folder`."""

    def __init__(
        self, folder, compiler=COMPILERS[0] if COMPILERS else "", name="model", flags=("-O2",)
    ):
        header = (folder / f"{name}.h").read_text()
        has_class = int(f"int {name}_class(" in header)
        source = folder / f"{name}_{compiler}.c"
        source.write_text(_PROGRAM.format(name=name, has_class=has_class))
        library = folder / f"{name}_{compiler}_{abs(hash(flags))}.so"
        strict = (*STRICT, "-Wno-missing-prototypes")
        command = [
            compiler,
            *strict,
            *flags,
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(library),
            "-lm",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self._library = ctypes.CDLL(str(library))
        self._dtype = np.float64 if f"typedef double {name}_input" in header else np.float32
        self.n_predictions = self._library.n_predictions()

    def _call(self, function, X, out):
        X = np.ascontiguousarray(X, self._dtype)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (X, out)]
        getattr(self._library, function)(*pointers, ctypes.c_long(len(X)))
        return out

    def raw(self, X, n_outputs):
        return self._call("raw_of", X, np.empty((len(X), n_outputs)))

    def predictions(self, X):
        return self._call("predictions_of", X, np.empty((len(X), self.n_predictions)))

    def classes(self, X):
        return self._call("classes_of", X, np.empty(len(X), np.intc))
