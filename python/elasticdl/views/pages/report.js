// Unpacks plotly.js, which the file carries compressed, and draws the report's charts.
"use strict";

(async () => {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  for (const [key, figure] of Object.entries(figures)) {
    const plot = document.getElementById(key);
    await charts.draw(plot, figure);
    charts.legend(plot.parentElement.querySelector(".legend"), plot, figure.data);
  }
  document.documentElement.dataset.drawn = String(Object.keys(figures).length);
})();
