"use strict";
// Draws each figure from the columns of a table, so that the figures are readable without it.
(() => {
  const NAMES = ["accent", "plot-2", "plot-3"];
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const cells = (table, column) =>
    [...table.tBodies[0].rows].map((row) => {
      const value = row.cells[column].dataset.value;
      return value === "" || value === undefined ? null : Number(value);
    });
  const short = (value, unit) => {
    if (value === null || value === undefined) return "–";
    if (unit === "bytes") return `${(value / 1048576).toFixed(value && value < 10485760 ? 1 : 0)} MB`;
    return value >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
  };

  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

  function draw(figure) {
    const table = document.getElementById(`${figure.dataset.plot}-table`);
    if (!table) return;
    const columns = figure.dataset.columns.split(" ").map(Number);
    const byTime = figure.dataset.x !== "index";
    const x = [...table.tBodies[0].rows].map((row, index) =>
      byTime ? Date.parse(row.cells[0].querySelector("time").dateTime) / 1000 : index);
    const series = columns.map((column) => cells(table, column));
    if (figure.dataset.order === "reverse") series.forEach((values) => values.reverse());
    const unit = figure.dataset.unit;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const heads = table.tHead.rows[0].cells;
    const options = {
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      width: Math.max(240, figure.clientWidth), height: 170, cursor: { y: false },
      scales: { x: { time: byTime }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.05] } },
      axes: [
        byTime ? { ...axis, values: (_, splits) => splits.map(clock) } : { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100], values: (_, splits) => splits.map((value) => value + 1) },
        { ...axis, size: 62, values: (_, splits) => splits.map((value) => short(value, unit)) },
      ],
      series: [byTime ? { label: "Time (UTC)", value: (_, value) => (value === null ? "–" : clock(value)) } : { label: "Evaluation", value: (_, value) => (value === null ? "–" : value + 1) },
        ...columns.map((column, index) => ({ label: heads[column].textContent, stroke: colour(NAMES[index]), width: 2, dash: index === 1 ? [6, 4] : index === 2 ? [2, 3] : [], points: { show: x.length < 3 || !byTime }, value: (_, value) => short(value, unit) }))],
    };
    drawn.get(figure)?.destroy();
    drawn.set(figure, new uPlot(options, [x, ...series], figure));
  }

  function drawAll() {
    for (const [figure, plot] of drawn) if (!figure.isConnected) { plot.destroy(); drawn.delete(figure); }
    document.querySelectorAll("figure[data-plot]").forEach(draw);
  }

  drawAll();
  document.addEventListener("htmx:after:swap", (event) => {
    if (document.querySelector("figure[data-plot]:not(:has(.uplot))")) drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawAll, 150); });
})();
