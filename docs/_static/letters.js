// The sliders and bars of how_to/browser.md: a model in WebAssembly predicts 26 probabilities.
"use strict";
{
  // Rows of the test data, a hexadecimal digit for each feature.
  const rows = {
    A: "3654194317183628",
    E: "00100575676c086a",
    G: "59775677556b4848",
    M: "4a68676657798528",
    Q: "8d7747548a593799",
    R: "555635c83729376b",
    S: "3654669338763891",
    T: "6a88667787685b88",
    W: "456437b237987b18",
  };
  const features = [
    "x of the box", "y of the box", "width", "height", "pixels", "mean x", "mean y",
    "variance of x", "variance of y", "correlation", "mean of x²y", "mean of xy²",
    "edges from left", "edges × y", "edges from below", "edges × x",
  ];
  const address = new URL("letters.wasm", document.currentScript.src);

  function add(parent, tag, text = "", properties = {}) {
    const element = document.createElement(tag);
    Object.assign(element, { textContent: text, ...properties });
    return parent.appendChild(element);
  }

  async function show(place) {
    const answer = await fetch(address);
    const { instance } = await WebAssembly.instantiate(await answer.arrayBuffer());
    const { memory, row, predictions, predict } = instance.exports;
    const x = new Float32Array(memory.buffer, row(), features.length);
    const probabilities = new Float64Array(memory.buffer, predictions(), 26);

    const buttons = add(place, "p", "A letter of the test data: ");
    const inputs = add(place, "div", "", { className: "letters-inputs" });
    const bars = add(place, "div", "", { className: "letters-bars" });
    const sliders = features.map((name) => {
      const label = add(inputs, "label", name);
      return add(label, "input", "", { type: "range", min: 0, max: 15, oninput: update });
    });
    const columns = Array.from(probabilities, (_, i) => {
      const column = add(bars, "div");
      add(column, "span", String.fromCharCode(65 + i));
      return column;
    });

    function update() {
      x.set(sliders.map((slider) => slider.valueAsNumber));
      predict();
      columns.forEach((column, i) => {
        column.style.setProperty("--probability", probabilities[i]);
        column.title = `${column.textContent}: ${(100 * probabilities[i]).toFixed(1)} %`;
      });
    }

    function choose(letter) {
      sliders.forEach((slider, i) => { slider.value = parseInt(rows[letter][i], 16); });
      update();
    }

    for (const letter of Object.keys(rows))
      add(buttons, "button", letter, { onclick: () => choose(letter) });
    choose("A");
  }

  const place = document.getElementById("letters");
  show(place).catch((error) => {
    add(place, "p", `The model could not be loaded (${error.message}): serve the site by HTTP.`);
  });
}
