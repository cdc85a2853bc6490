// Draws the charts of a page: theme, legend, size. Knows neither jobs nor Prometheus.
"use strict";

const charts = (() => {
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What changes between light and dark; everything else is the figure's own.
  function theme(plot) {
    const axis = {
      gridcolor: colour("--grid"), linecolor: colour("--line"),
      zerolinecolor: colour("--line"), tickcolor: colour("--line"),
      automargin: true, title: { standoff: 8, font: { size: 12 } },
    };
    return { layout: {
      font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        size: 12, color: colour("--text") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      // Beside each other, never slanted: fewer of them where there is less room.
      xaxis: { ...axis, tickangle: 0, nticks: plot.clientWidth < 420 ? 5 : 9 }, yaxis: axis,
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"),
        font: { color: colour("--text") }, align: "left", namelength: -1 },
    } };
  }

  function margins(plot) {
    // Room of plotly's own title and tool bar, which are not there.
    return { t: 8, r: plot.hasAttribute("data-right") ? 48 : 14, b: 36, l: 48 };
  }

  function draw(plot, figure) {
    const bars = figure.data[0].type === "bar" ? figure.data[0].y.length : 0;
    plot.style.minHeight = `${bars * 25 + 70}px`;
    const layout = Object.assign({}, figure.layout, {
      template: theme(plot), margin: margins(plot), autosize: true,
      // On a touch screen a finger scrolls the page instead of drawing a zoom box.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    });
    return Plotly.react(plot, figure.data, layout,
      { responsive: true, displayModeBar: false });
  }

  function swatch(trace) {
    const mark = trace.mode === "markers";
    const line = trace.line || {};
    const tone = (mark ? (trace.marker || {}).color : line.color) || "currentColor";
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", "18"); svg.setAttribute("height", "10");
    svg.setAttribute("aria-hidden", "true");
    const shape = document.createElementNS(svg.namespaceURI, mark ? "path" : "line");
    if (mark) {
      const paths = { x: "M5 1L13 9M13 1L5 9", "triangle-up": "M9 0L14 10H4Z",
        "triangle-down": "M9 10L14 0H4Z", "triangle-down-open": "M9 9L13 1H5Z",
        diamond: "M9 0L14 5L9 10L4 5Z" };
      const symbol = (trace.marker || {}).symbol;
      const open = symbol === "x" || /-open$/.test(symbol || "");
      shape.setAttribute("d", paths[symbol] || "M9 1a4 4 0 1 0 .01 0Z");
      shape.setAttribute("fill", open ? "none" : tone);
      shape.setAttribute("stroke", tone);
      shape.setAttribute("stroke-width", open ? "2" : "0");
    } else {
      const dashes = { dot: "2 3", dash: "6 3", dashdot: "6 3 2 3" };
      for (const [key, value] of Object.entries({ x1: 0, x2: 18, y1: 5, y2: 5,
        stroke: tone, "stroke-width": trace.stackgroup || trace.fill ? 8 : 3,
        "stroke-dasharray": dashes[line.dash] || "none" })) shape.setAttribute(key, value);
    }
    svg.append(shape);
    return svg;
  }

  // Names in figures are escaped for plotly; here they are text again.
  function unescaped(text) {
    return text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  }

  // Plotly's own legend takes the chart's room when it is long; this one wraps.
  function legend(box, plot, traces) {
    box.replaceChildren();
    traces.forEach((trace, number) => {
      if (!trace.name || trace.showlegend === false) return;
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(trace.visible !== "legendonly"));
      button.dataset.name = trace.name;
      button.title = "show or hide";
      button.append(swatch(trace), unescaped(trace.name));
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        Plotly.restyle(plot, { visible: shown ? true : "legendonly" }, [number]);
      });
      box.append(button);
    });
  }

  // The names that were switched off, for a legend that is about to be made anew.
  function hidden(box) {
    const off = box.querySelectorAll('button[aria-pressed="false"]');
    return new Set([...off].map((button) => button.dataset.name));
  }

  // `data-scheme` says in which scheme all charts are drawn since it changed.
  async function retheme(change) {
    const plots = [...document.querySelectorAll(".plot.js-plotly-plot")];
    await Promise.all(plots.map((plot) =>
      Plotly.relayout(plot, { template: theme(plot) })));
    document.documentElement.dataset.scheme = change.matches ? "dark" : "light";
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  // Paper is white and has its own width, whatever the screen is. Sizes are set at
  // once: a browser prints what is drawn when this returns.
  function printing(on) {
    document.documentElement.classList.toggle("printing", on);
    for (const plot of document.querySelectorAll(".plot.js-plotly-plot"))
      Plotly.relayout(plot, { template: theme(plot), autosize: !on,
        width: on ? plot.clientWidth : null, height: on ? plot.clientHeight : null });
  }
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));

  return { draw, hidden, legend };
})();
