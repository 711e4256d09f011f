"use strict";
// The page's own script: colours, sizes of timelines, tables of rows, copies and downloads.
(() => {
  const root = document.documentElement;
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("scheme");
  const scheme = () => root.dataset.scheme ?? (wish.matches ? "dark" : "light");
  const make = (tag, text = "", values = {}) =>
    Object.assign(document.createElement(tag), {textContent: text, ...values});

  function show() {
    button.textContent = scheme() === "dark" ? "Light" : "Dark";
  }

  button.addEventListener("click", () => {
    root.dataset.scheme = scheme() === "dark" ? "light" : "dark";
    show();
  });
  wish.addEventListener("change", show);
  button.hidden = false;
  show();

  const WORDS = {
    wait: "waits", exec: "executes", pre: "is pre-empted in", fail: "fails", met: "due, met",
    late: "due, missed", out: "delivered", asked: "asked", gone: "canceled",
  };
  const MOST_ZOOM = 64;

  function said(element, timeline, low, span) {
    const lane = element.closest(".lane");
    const at = (share) => low + span * parseFloat(share) / 100;
    const kind = element.classList[0];
    const heard = kind === "exec" && element.classList.contains("answer");
    const words = [heard ? "takes in" : WORDS[kind], element.textContent, element.dataset.l];
    const start = at(element.style.left);
    const length = span * parseFloat(element.style.width || "0") / 100;
    const when = element.tagName === "I"
      ? `${start.toFixed(2)} to ${(start + length).toFixed(2)} s (${length.toFixed(2)} s)`
      : `${start.toFixed(2)} s`;
    const request = lane.dataset.requests.split("\n")[element.dataset.r];
    return `${request}: ${words.filter(Boolean).join(" ")}, ${when}`;
  }

  for (const timeline of document.querySelectorAll(".timeline")) {
    const scroll = timeline.querySelector(".scroll");
    const sheet = timeline.querySelector(".sheet");
    const low = Number(timeline.dataset.low);
    const span = Number(timeline.dataset.high) - low;
    const bar = make("p", "", {className: "zoom"});
    const readout = make("output", "Point at a bar to read it.");
    let zoom = 1;
    const size = (factor) => {
      const middle = (scroll.scrollLeft + scroll.clientWidth / 2) / sheet.offsetWidth;
      zoom = factor ? Math.min(Math.max(zoom * factor, 1), MOST_ZOOM) : 1;
      sheet.style.width = `${100 * zoom}%`;
      timeline.classList.toggle("large", zoom >= 4);
      scroll.scrollLeft = middle * sheet.offsetWidth - scroll.clientWidth / 2;
    };
    for (const [sign, name, factor] of [["−", "Smaller", 0.5], ["+", "Larger", 2], ["↔", "All of it", 0]]) {
      const knob = make("button", sign, {type: "button", title: name});
      knob.setAttribute("aria-label", name);
      knob.addEventListener("click", () => size(factor));
      bar.append(knob);
    }
    bar.append(readout);
    scroll.before(bar);
    const describe = ({target}) => {
      const one = target.closest?.(".bars > i, .bars > b");
      if (one) readout.textContent = said(one, timeline, low, span);
    };
    scroll.addEventListener("pointerover", describe);
    scroll.addEventListener("click", describe);
    scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      size(event.deltaY < 0 ? 1.25 : 0.8);
    }, {passive: false});
  }

  for (const copy of document.querySelectorAll("button.copy")) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const code = copy.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  // An empty list stands for a value that a row lacks.
  const lacks = (value) => Array.isArray(value);
  const shown = (value) => lacks(value) || value === null ? "–" : String(value);

  // A spreadsheet takes a text that begins like a formula for one.
  function field(value) {
    if (value === null || lacks(value)) return "";
    if (typeof value !== "string") return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function csv({columns, rows}) {
    return [columns, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("");
  }

  function objects({columns, rows}) {
    return rows.map((row) => Object.fromEntries(
      columns.map((name, place) => [name, row[place]]).filter(([, value]) => !lacks(value))));
  }

  function save(text, type, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  const MOST_ROWS = 1000;

  function table({columns, rows}) {
    const made = make("table");
    const head = made.createTHead().insertRow();
    for (const name of columns) head.append(make("th", name, {scope: "col"}));
    const body = made.createTBody();
    for (const row of rows.slice(0, MOST_ROWS)) {
      const line = body.insertRow();
      row.forEach((value, place) => {
        const number = typeof value === "number";
        const cell = make("td", shown(value), {className: number ? "number" : ""});
        cell.dataset.head = columns[place];
        line.append(cell);
      });
    }
    const wide = make("div", "", {className: "wide raw", tabIndex: 0});
    wide.append(made);
    return wide;
  }

  for (const details of document.querySelectorAll("details.rows")) {
    const read = () => JSON.parse(document.getElementById(details.dataset.rows).textContent);
    const downloads = details.querySelector(".downloads");
    downloads.hidden = false;
    details.addEventListener("toggle", () => {
      if (details.open && !details.querySelector("table")) details.append(table(read()));
    });
    downloads.addEventListener("click", ({target}) => {
      const kind = target.dataset.kind;
      if (!kind) return;
      const text = kind === "csv" ? csv(read()) : JSON.stringify(objects(read()), null, 1);
      const type = kind === "csv" ? "text/csv" : "application/json";
      save(text, type, `${details.dataset.name.replace(/[^\w.-]+/g, "-")}.${kind}`);
    });
  }
  root.dataset.drawn = "yes";
})();
