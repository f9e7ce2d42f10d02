"""The page that predicts in the browser: its WebAssembly in node, its script in Chromium."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from support import ROOT

from polyleaf.datasets import load

STATIC = ROOT / "docs" / "_static"

# Predict each row of a file of float32, and write scores and predictions as float64.
PREDICT_ROWS = """
const fs = require("fs");
const [wasm, rows, output] = process.argv.slice(1);
const { memory, row, scores, predictions, predict } =
  new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(wasm))).exports;
const x = new Float32Array(memory.buffer, row(), 16);
const views = [scores(), predictions()].map((at) => new Float64Array(memory.buffer, at, 26));
const X = new Float32Array(new Uint8Array(fs.readFileSync(rows)).buffer);
const found = new Float64Array(X.length / 16 * 52);
for (let i = 0; i < X.length / 16; ++i) {
  x.set(X.subarray(16 * i, 16 * i + 16));
  predict();
  views.forEach((view, k) => found.set(view, 52 * i + 26 * k));
}
fs.writeFileSync(output, Buffer.from(found.buffer));
"""

# Move the first slider from 0 to 15 once the page is there, and write both vectors.
MOVE_SLIDER = """
setInterval(() => {
  const slider = document.querySelectorAll("#letters input")[5];
  if (!slider || document.getElementById("found")) return;
  const vectors = [0, 15].map((value) => {
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
    return [...document.querySelectorAll(".letters-bars div")].map(
      (bar) => Number(bar.style.getPropertyValue("--probability")));
  });
  const found = document.createElement("pre");
  found.id = "found";
  found.textContent = JSON.stringify(vectors);
  document.body.append(found);
}, 50);
"""


@pytest.fixture(scope="module")
def model():
    spec = importlib.util.spec_from_file_location("letters", ROOT / "docs/_ext/letters.py")
    letters = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(letters)
    return letters.fit()


def test_webassembly_gives_the_scores_of_the_model(model, tmp_path):
    if (node := shutil.which("node")) is None:
        pytest.skip("the test needs node")
    X = load("letter").split()[1].astype(np.float32)
    X.tofile(tmp_path / "X")
    files = (STATIC / "letters.wasm", tmp_path / "X", tmp_path / "found")
    subprocess.run([node, "-e", PREDICT_ROWS, *files], check=True)
    found = np.fromfile(tmp_path / "found").reshape(len(X), 2, 26)
    assert (found[:, 0] == model.model_.predict_raw(X)).all(), "write it by docs/_ext/letters.py"
    np.testing.assert_allclose(found[:, 1], model.predict_proba(X), rtol=1e-14)


def test_sliders_move_the_bars(model, tmp_path):
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("the test needs Chromium")
    for name in ("letters.js", "letters.wasm"):
        shutil.copy(STATIC / name, tmp_path)
    place = '<div id="letters"></div><script src="letters.js"></script>'
    (tmp_path / "page.html").write_text(f"{place}<script>{MOVE_SLIDER}</script>", "utf-8")
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/page.html"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    try:
        page = subprocess.run(
            [chromium, *options, profile, "--dump-dom", address],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    finally:
        server.shutdown()
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', page)[1])
    row = re.search(r'A: "(\w+)"', (STATIC / "letters.js").read_text("utf-8"))[1]
    X = np.array([[int(digit, 16) for digit in row]] * 2, np.float32)
    X[:, 5] = 0, 15
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-14)
    assert found[0] != found[1]
