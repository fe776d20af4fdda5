"use strict";

// Tables sort by a click, Enter or the space bar on a header: up, down, as written. A cell counts by the number that it
// begins with ("12.3 ± 0.4", "1,234", "−0.5 [−1, 0]", "41 MiB"), in a column where every cell has one.
const UNITS = { s: 1, min: 60, h: 3600, d: 86400, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
const NUMBER = /^([+-]?)(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|∞)(?:\s?(s|min|h|d|KiB|MiB|GiB|K|M|G|T))?(?!\w)/;
const NOTHING = /^[–/\s]*$/;

function numberOf(text) {
  const found = NUMBER.exec(text.replaceAll("−", "-"));
  if (found === null) return null;
  const size = found[2] === "∞" ? Infinity : Number(found[2].replaceAll(",", "")) * (UNITS[found[3]] ?? 1);
  return found[1] === "-" ? -size : size;
}

function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, text: row.cells[column].textContent.trim() }));
  rows.sort((a, b) => a.row.dataset.order - b.row.dataset.order);
  if (direction !== "none") {
    const sign = direction === "ascending" ? 1 : -1;
    const filled = rows.filter(({ text }) => !NOTHING.test(text));
    const numeric = filled.every(({ text }) => numberOf(text) !== null);
    const words = new Intl.Collator("en", { numeric: true });
    const order = (a, b) => {
      const [x, y] = numeric ? [numberOf(a.text), numberOf(b.text)] : [0, 0];
      return x < y ? -1 : x > y ? 1 : words.compare(a.text, b.text);
    };
    filled.sort((a, b) => sign * order(a, b));
    rows.splice(0, rows.length, ...filled, ...rows.filter(({ text }) => NOTHING.test(text)));
  }
  body.append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table")) {
  const headers = [...table.tHead.rows[0].cells];
  if (table.tBodies.length === 0 || table.tBodies[0].rows.length < 2) continue;
  [...table.tBodies[0].rows].forEach((row, place) => { row.dataset.order = place; });
  headers.forEach((header, column) => {
    if (header.textContent.trim() === "") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[header.getAttribute("aria-sort")];
      for (const other of headers) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", next);
      sortBy(table, column, next);
    });
  });
}

async function drawCurves(data) {
  document.querySelector(".curves").hidden = false;
  await Bokeh.embed.embed_item(JSON.parse(data.textContent), "curves");
  const switches = [...document.querySelectorAll("[data-lines]")];
  const shown = Bokeh.documents[0].get_model_by_name("shown");
  const follow = () => {
    const checked = switches.filter((box) => box.checked);
    shown.indices = checked.flatMap((box) => JSON.parse(box.dataset.lines));
  };
  for (const box of switches) {
    box.checked = true; // a browser may remember another state over a reload
    box.addEventListener("change", follow);
  }
  for (const button of document.querySelectorAll("[data-all]")) {
    button.addEventListener("click", () => {
      for (const box of switches) box.checked = button.dataset.all === "show";
      follow();
    });
  }
}

const data = document.getElementById("curves-data");
if (data !== null) drawCurves(data);
