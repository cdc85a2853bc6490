// The dashboard page: what is chosen is in its address, panels are asked of the server.
"use strict";

const start = JSON.parse(document.getElementById("start").textContent);
const find = (id) => document.getElementById(id);
const SPANS = { "now-5m": "last 5 minutes", "now-15m": "last 15 minutes",
  "now-1h": "last hour", "now-3h": "last 3 hours", "now-6h": "last 6 hours",
  "now-24h": "last 24 hours", "now-2d": "last 2 days", "now-7d": "last 7 days",
  "now-30d": "last 30 days", custom: "from … to …" };
const REFRESHES = { "": "off", "5s": "5 s", "10s": "10 s", "30s": "30 s", "1m": "1 min",
  "5m": "5 min" };
const ALL = "$__all";

// The address uses Grafana's names, so that its links between dashboards work here.
function address() {
  const query = new URLSearchParams(location.search);
  if (!query.has("from")) query.set("from", start.time.from);
  if (!query.has("to")) query.set("to", start.time.to);
  if (!query.has("refresh")) query.set("refresh", start.refresh);
  return query;
}

function go(change) {
  const query = address();
  change(query);
  history.replaceState(null, "", `?${query}`);
  load();
}

function element(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function fill(select, named, chosen) {
  if (document.activeElement === select) return;  // not under somebody's finger
  select.replaceChildren(...Object.entries(named).map(([value, text]) => {
    const option = element("option", { value }, text);
    option.selected = chosen.includes(value);
    return option;
  }));
}

async function ask(path) {
  const query = address();
  query.set("zone", String(-new Date().getTimezoneOffset()));
  let answer;
  try {
    answer = await fetch(`${path}?${query}`);
  } catch {
    throw new Error("`elasticdl dashboard` does not answer: got no connection, expected "
      + "it to run where this page came from; start it again, the page then goes on.");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// ---- what is chosen

const local = (milliseconds) => {
  const moment = new Date(milliseconds);
  return new Date(moment - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
};

function showControls() {
  const query = address();
  const from = query.get("from");
  const custom = !(from in SPANS) || query.get("to") !== "now";
  fill(find("span"), SPANS, [custom ? "custom" : from]);
  find("custom").hidden = !custom;
  if (custom && /^\d+$/.test(from)) {
    find("from").value = local(Number(from));
    find("to").value = local(/^\d+$/.test(query.get("to")) ? Number(query.get("to")) : Date.now());
  }
  fill(find("refresh"), REFRESHES, [query.get("refresh")]);
  find("tabs").replaceChildren(...start.boards.map((board) => {
    const tab = element("a", { href: `/d/${board.uid}?${query}` }, board.title);
    if (board.uid === start.uid) tab.setAttribute("aria-current", "page");
    return tab;
  }));
}

find("span").addEventListener("change", ({ target }) => go((query) => {
  target.blur();
  if (target.value === "custom") {
    const now = Date.now();
    query.set("from", String(now - 3600000));
    query.set("to", String(now));
    query.set("refresh", "");
  } else {
    query.set("from", target.value);
    query.set("to", "now");
  }
}));
for (const end of ["from", "to"])
  find(end).addEventListener("change", ({ target }) => {
    const moment = new Date(target.value).getTime();
    if (!Number.isNaN(moment)) go((query) => query.set(end, String(moment)));
  });
find("refresh").addEventListener("change", ({ target }) => go((query) => {
  target.blur();
  query.set("refresh", target.value);
}));
find("now").addEventListener("click", () => load());
find("controls").addEventListener("submit", (event) => event.preventDefault());

function showVariables(variables) {
  const box = find("variables");
  for (const variable of variables) {
    let select = find(`var-${variable.name}`);
    if (!select) {
      select = element("select", { id: `var-${variable.name}` });
      select.addEventListener("change", () => go((query) => {
        select.blur();
        query.delete(select.id);
        query.append(select.id, select.value);
      }));
      box.append(element("label", {}, `${variable.label} `, select));
    }
    const named = Object.fromEntries(variable.options.map((one) => [one, one === ALL ? "all" : one]));
    // Several can be chosen by an address only, as one of Grafana's does it.
    const several = variable.chosen.length > 1;
    if (several) named[variable.chosen.join()] = variable.chosen.join(", ");
    if (!variable.options.length) named[""] = "none yet";
    fill(select, named, several ? [variable.chosen.join()] : variable.chosen);
  }
}

// ---- panels

const boxes = new Map();

function makePanels() {
  const order = [...start.panels].sort((a, b) => a.place.y - b.place.y || a.place.x - b.place.x);
  find("panels").append(...order.map((panel) => {
    if (panel.type === "row") return element("h2", { class: "row" }, panel.title);
    const body = element("div", { class: "chart" });
    const box = element("section", { class: "card panel", "data-type": panel.type },
      element("h3", {}, panel.title));
    if (panel.description) box.append(element("p", { class: "what" }, panel.description));
    box.append(body);
    box.style.setProperty("--w", panel.place.w);
    box.style.setProperty("--h", panel.place.h);
    boxes.set(panel.id, { box, body, panel });
    return box;
  }));
}

const show = {
  async chart(body, { figure }, panel) {
    let plot = body.querySelector(".plot");
    if (!plot) {
      plot = element("div", { class: "plot", role: "img", "aria-label": panel.title });
      body.replaceChildren(plot, element("div", { class: "legend" }));
    }
    plot.toggleAttribute("data-right", "yaxis2" in figure.layout);
    const hidden = charts.hidden(body.querySelector(".legend"));
    for (const trace of figure.data) if (hidden.has(trace.name)) trace.visible = "legendonly";
    await charts.draw(plot, figure);
    charts.legend(body.querySelector(".legend"), plot, figure.data);
  },
  stat(body, { items }) {
    body.replaceChildren(element("dl", { class: "stats" }, ...items.map(({ name, value }) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
  },
  table(body, { columns, rows }) {
    const kind = (number) => (columns[number].number ? { class: "number" } : {});
    const head = element("tr", {}, ...columns.map(({ name }, n) => element("th", kind(n), name)));
    const lines = rows.map((row) =>
      element("tr", {}, ...row.map((cell, n) => element("td", kind(n), cell))));
    body.replaceChildren(element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, head), element("tbody", {}, ...lines))));
  },
  nothing(body, { text }) {
    const plot = body.querySelector(".js-plotly-plot");
    if (plot) Plotly.purge(plot);
    body.replaceChildren(element("p", { class: "empty" }, text));
  },
};

async function showPanel({ box, body, panel }, turn) {
  box.setAttribute("aria-busy", "true");
  try {
    const found = await ask(`/api/panels/${start.uid}/${panel.id}`);
    if (turn === loading) await show[found.kind](body, found, panel);
  } catch (error) {
    if (turn === loading) show.nothing(body, { text: error.message });
  }
  box.setAttribute("aria-busy", "false");
}

// ---- the whole page

let loading = 0;
let timer;

function trouble(text) {
  find("trouble").textContent = text;
  find("trouble").hidden = !text;
}

async function load() {
  const turn = ++loading;
  clearTimeout(timer);
  showControls();
  find("state").textContent = "asking …";
  try {
    const { variables } = await ask(`/api/boards/${start.uid}`);
    if (turn !== loading) return;
    showVariables(variables);
    const query = address();
    for (const { name, chosen } of variables) {
      query.delete(`var-${name}`);
      for (const value of chosen) query.append(`var-${name}`, value);
    }
    history.replaceState(null, "", `?${query}`);
    showControls();
    trouble(variables.some(({ options }) => !options.length)
      ? `Prometheus at ${start.prometheus} answers, but knows no job in this time: expected `
        + "figures of elasticdl_job_info; does it scrape the jobs (docs/metrics.md), and does "
        + "one run?" : "");
    await Promise.all([...boxes.values()].map((one) => showPanel(one, turn)));
    if (turn === loading) find("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    if (turn !== loading) return;
    trouble(error.message);
    find("state").textContent = "no answer";
  }
  if (turn !== loading) return;
  document.documentElement.dataset.drawn = String(turn);
  const wait = { "5s": 5, "10s": 10, "30s": 30, "1m": 60, "5m": 300 }[address().get("refresh")];
  if (wait) timer = setTimeout(load, wait * 1000);
}

addEventListener("popstate", load);
makePanels();
load();
