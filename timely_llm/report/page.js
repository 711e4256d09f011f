"use strict";
// The page's own script: draws the plots, switches colours, copies and saves.
(() => {
  const root = document.documentElement;
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("scheme");
  const scheme = () => root.dataset.scheme ?? (wish.matches ? "dark" : "light");

  // A plot's models know in their tags what they look like in each scheme.
  function theme(drawn) {
    for (const plot of drawn.roots()) {
      for (const model of plot.references()) {
        const look = model.tags?.[0]?.[scheme()];
        if (look) model.setv(look);
      }
    }
  }

  function show() {
    button.textContent = scheme() === "dark" ? "Light" : "Dark";
    root.dataset.plots = scheme();
    Bokeh.documents.forEach(theme);
  }

  button.addEventListener("click", () => {
    root.dataset.scheme = scheme() === "dark" ? "light" : "dark";
    show();
  });
  wish.addEventListener("change", show);
  button.hidden = false;

  function names(requests, indices) {
    const most = 40;
    const shown = indices.slice(0, most).map((index) => requests[index]).join(", ");
    return indices.length > most ? `${shown} and ${indices.length - most} more` : shown;
  }

  // The steps of a timeline know their requests by index.
  function nameRequests(drawn, requests) {
    const steps = drawn.get_model_by_name("steps");
    if (steps === null) return;
    steps.data = {...steps.data, who: steps.data.who.map((indices) => names(requests, indices))};
  }

  async function draw(script) {
    const {item, requests} = JSON.parse(script.textContent);
    await Bokeh.embed.embed_item(item, script.dataset.plot);
    const drawn = Bokeh.documents.at(-1);
    nameRequests(drawn, requests);
    theme(drawn);
  }

  // One after the other; what is in closed details when they are opened.
  let drawing = Promise.resolve();
  function drawVisible() {
    for (const script of document.querySelectorAll("script[data-plot]")) {
      if (script.closest("details:not([open])") !== null) continue;
      script.remove();
      drawing = drawing.then(() => draw(script)).catch(console.error);
    }
    drawing.then(() => { root.dataset.drawn = String(Bokeh.documents.length); });
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

  // A spreadsheet takes a text that begins like a formula for one.
  function field(value) {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function csv({columns, rows}) {
    const lines = [columns.map(field), ...rows.map((row) => columns.map((name) => field(row[name])))];
    return lines.map((line) => line.join(",") + "\r\n").join("");
  }

  function save(text, type, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  for (const downloads of document.querySelectorAll(".downloads")) {
    downloads.hidden = false;
    downloads.addEventListener("click", ({target}) => {
      const kind = target.dataset.kind;
      if (!kind) return;
      const table = JSON.parse(document.getElementById(downloads.dataset.rows).textContent);
      const text = kind === "csv" ? csv(table) : JSON.stringify(table.rows, null, 1);
      const type = kind === "csv" ? "text/csv" : "application/json";
      save(text, type, `${downloads.dataset.name.replace(/[^\w.-]+/g, "-")}.${kind}`);
    });
  }

  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", drawVisible);
  }
  show();
  drawVisible();
})();
