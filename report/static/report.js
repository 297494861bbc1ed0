"use strict";
// Draws the figures of the page's data in the page's own colours, and sorts its tables. Nothing is fetched.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] };
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const series = (index) => colour(index < 0 ? "--muted" : `--series-${index % 6}`);
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function coloured(trace) {
    const own = series(trace.meta.series);
    const marker = { ...trace.marker, color: own };
    if (trace.marker && trace.marker.line) marker.line = { ...trace.marker.line, color: own };
    const result = { ...trace, marker, line: { ...trace.line, color: own } };
    if (trace.type === "bar") delete result.line;
    if (trace.fill) result.fillcolor = faded(own, 0.16);
    if (trace.error_y) result.error_y = { ...trace.error_y, color: own };
    return result;
  }

  function decades(values) {
    const positive = values.filter((value) => value > 0);
    return positive.length ? Math.log10(Math.max(...positive) / Math.min(...positive)) : 0;
  }

  function axis(given, values) {
    const quiet = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--grid"), automargin: true, fixedrange: false };
    // Without a format plotly labels the ticks between powers of ten by their first digit alone.
    if (given.type === "log" && !given.tickvals) quiet.tickformat = ",.7~g";
    // Ticks at 1, 2 and 5 of each power of ten, unless the axis is too short to hold two of them.
    if (quiet.tickformat && decades(values) > 0.7) quiet.dtick = "D2";
    return { ...quiet, ...given, title: { ...given.title, standoff: 10, font: { size: 12 } } };
  }

  function layout(given, traces) {
    const result = {
      ...given,
      autosize: true,
      height: innerWidth < 600 ? 340 : 380,
      margin: { l: 8, r: 12, t: 12, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--text-soft") },
      legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, font: { color: colour("--text") } },
      hoverlabel: { bgcolor: colour("--surface"), bordercolor: colour("--line"), font: { color: colour("--text") } },
      shapes: (given.shapes || []).map((shape) => ({ ...shape, fillcolor: colour("--shade"), line: { width: 0 } })),
    };
    for (const name of ["xaxis", "yaxis", "yaxis2"]) if (given[name]) result[name] = axis(given[name], traces.flatMap((trace) => trace[name[0]]));
    return result;
  }

  function draw(name, figure) {
    drawn.set(name, figure);
    const place = document.querySelector(`[data-plot="${name}"]`);
    if (place) Plotly.react(place, figure.data.map(coloured), layout(figure.layout, figure.data), config);
    const details = document.querySelector(`[data-table="${name}"]`);
    if (details && details.open) fill(details);
  }

  // One cell, or two beside each other: the second one's traces get its name and the next colour.
  function drawCells() {
    const chosen = [document.getElementById("cell-first").value, document.getElementById("cell-second").value];
    const cells = chosen.filter((value) => value !== "").map((value) => data.cells[Number(value)]);
    for (const name of ["percentiles", "histogram", "time"]) {
      const merged = cells.flatMap((cell, index) =>
        cell.plots[name].data.map((trace) => ({
          ...trace,
          name: cells.length > 1 ? `${escaped(cell.name)}: ${trace.name}` : trace.name,
          showlegend: cells.length > 1 || trace.showlegend !== false,
          meta: { series: trace.meta.series < 0 ? -1 : index },
        })),
      );
      if (cells.length === 1 && name !== "time") merged.forEach((trace) => (trace.showlegend = false));
      const base = cells[0].plots[name].layout;
      const second = cells[1] && cells[1].plots[name].layout;
      const combined = { ...base, ...(second && second.yaxis2 ? { yaxis2: second.yaxis2 } : {}) };
      if (second) combined.xaxis = widest(base.xaxis, second.xaxis);
      draw(name, { data: merged, layout: combined });
    }
    const lines = document.getElementById("cell-lines");
    lines.replaceChildren(...cells.map(cellLine));
  }

  function widest(first, second) {
    const result = { ...first };
    if (first.range && second.range) result.range = [Math.min(first.range[0], second.range[0]), Math.max(first.range[1], second.range[1])];
    if (first.tickvals && second.tickvals && second.tickvals.length > first.tickvals.length) {
      result.tickvals = second.tickvals;
      result.ticktext = second.ticktext;
    }
    return result;
  }

  function cellLine(cell, index) {
    const block = document.createElement("div");
    block.className = "cell-line";
    block.style.setProperty("--series", `var(--series-${index})`);
    const text = document.createElement("p");
    const name = document.createElement("strong");
    name.textContent = cell.name;
    text.append(name, document.createElement("br"), cell.line);
    block.append(text);
    for (const remark of cell.remarks) {
      const note = document.createElement("p");
      note.className = "small";
      note.textContent = remark;
      block.append(note);
    }
    return block;
  }

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const plain = (text) => new DOMParser().parseFromString(text, "text/html").documentElement.textContent;

  // The data of a figure, one row per point.
  function rowsOf(name) {
    const { data: traces, layout: axes } = drawn.get(name);
    const head = ["series", axes.xaxis.title.text, axes.yaxis.title.text];
    const withPercent = traces.some((trace) => trace.customdata);
    if (withPercent) head[1] = "percentile";
    const rows = traces.flatMap((trace) => trace.x.map((x, i) => [plain(trace.name), withPercent ? trace.customdata[i] : x, trace.y[i]]));
    return [head, ...rows.filter((row) => row[2] !== null && row[2] !== undefined)];
  }

  function fill(details) {
    const [head, ...rows] = rowsOf(details.dataset.table);
    const table = document.createElement("table");
    const line = table.createTHead().insertRow();
    head.forEach((text, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      if (index) cell.className = "num";
      line.append(cell);
    });
    const body = table.createTBody();
    for (const row of rows) {
      const place = body.insertRow();
      row.forEach((value, index) => {
        const cell = place.insertCell();
        cell.textContent = value;
        if (index) cell.className = "num";
      });
    }
    details.querySelector(".scroll").replaceChildren(table);
  }

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const quoted = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));

  function sort(table, button) {
    const head = button.closest("th");
    const index = [...head.parentNode.children].indexOf(head);
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    const key = (row) => row.children[index].dataset.order;
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      const [first, second] = [key(a), key(b)];
      if (first === "" || second === "") return (first === "") - (second === ""); // what is missing comes last either way
      const [x, y] = [Number(first), Number(second)];
      return direction * (Number.isNaN(x) || Number.isNaN(y) ? first.localeCompare(second, "en", { numeric: true }) : x - y);
    });
    body.append(...rows);
  }

  function drawAll() {
    for (const [name, figure] of Object.entries(data.figures)) draw(name, figure);
    if (data.cells.length) drawCells();
  }

  for (const table of document.querySelectorAll("table.sortable"))
    table.tHead.addEventListener("click", (event) => event.target.closest("button") && sort(table, event.target.closest("button")));
  for (const id of ["cell-first", "cell-second"]) document.getElementById(id)?.addEventListener("change", drawCells);
  for (const details of document.querySelectorAll("[data-table]")) details.addEventListener("toggle", () => details.open && fill(details));
  for (const button of document.querySelectorAll("[data-csv]"))
    button.addEventListener("click", () => save(button.dataset.csv, rowsOf(button.dataset.csv).map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n"));
  for (const button of document.querySelectorAll("[data-image]"))
    button.addEventListener("click", () =>
      Plotly.downloadImage(document.querySelector(`[data-plot="${button.dataset.image}"]`), {
        format: button.dataset.format, filename: button.dataset.image, width: 1000, height: 560, scale: button.dataset.format === "png" ? 2 : 1,
      }),
    );
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  // Paper is white whatever the screen is, and the plots are drawn before the print rules hold.
  addEventListener("beforeprint", () => { document.documentElement.dataset.paper = ""; drawAll(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.paper; drawAll(); });
  drawAll();
  document.documentElement.dataset.ready = "yes";
})();
