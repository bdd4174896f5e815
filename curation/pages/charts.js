// Charts as SVG. Sizes are of the view box; the page scales them.

const COLORS = { remove: "#d1603d", replace_caption: "#2f6690", replace_image: "#3f7d58", down_weight: "#7a6ea8" };
const LINE_COLORS = { all: "#1c2430", "never edited": "#2f6690", "edited (before it)": "#d1603d", "planted faults": "#b98a2f", sound: "#3f7d58" };

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}

// Round steps (1, 2 or 5 times a power of ten) from 0 or `low` to at least `high`.
function ticks(low, high, wanted = 4) {
  const rough = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let tick = Math.floor(low / step); tick * step < high + step * 0.999; tick += 1) found.push(+(tick * step).toPrecision(12));
  return found;
}

const short = (value) => (Math.abs(value) >= 10000 ? +(value / 1000).toPrecision(3) + "k" : String(+value.toPrecision(4)));

function frame({ width = 460, height = 230, low, high, label, xLabel, format = short }) {
  const box = { left: 52, right: width - 12, top: 22, bottom: height - 38 };
  const levels = ticks(low, high);
  const [first, last] = [levels[0], levels[levels.length - 1]];
  const y = (value) => box.bottom - ((value - first) / (last - first)) * (box.bottom - box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label} by ${xLabel}` });
  for (const level of levels) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), stroke: "#e2e0d9" }));
    root.append(svg("text", { x: box.left - 7, y: y(level) + 4, "text-anchor": "end" }, format(level)));
  }
  root.append(svg("text", { x: 2, y: 11 }, label));
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel));
  return { root, box, y };
}

// At most a dozen names under the axis.
function nameAxis(root, box, names, x) {
  const every = Math.ceil(names.length / 12);
  names.forEach((name, at) => {
    if (at % every === 0) root.append(svg("text", { x: x(at), y: box.bottom + 16, "text-anchor": "middle" }, String(name)));
  });
}

function legend(series) {
  return make("div", { class: "legend" }, series.map((one) => {
    const mark = make("i");
    mark.style.background = one.color;
    return make("span", {}, mark, one.name);
  }));
}

// series: [{name, color, values}], a value for each name; stacked on each other.
function stackedBars({ names, series, label, xLabel }) {
  const sums = names.map((_, at) => series.reduce((sum, one) => sum + one.values[at], 0));
  const { root, box, y } = frame({ low: 0, high: Math.max(1, ...sums), label, xLabel });
  const slot = (box.right - box.left) / names.length;
  const x = (at) => box.left + slot * (at + 0.5);
  const thick = Math.min(56, slot * 0.7);
  names.forEach((name, at) => {
    let base = 0;
    for (const one of series) {
      const value = one.values[at];
      const bar = svg("rect", { x: x(at) - thick / 2, width: thick, y: y(base + value), height: y(base) - y(base + value), fill: one.color });
      bar.append(svg("title", {}, `${xLabel} ${name}: ${number(value)} ${one.name}`));
      root.append(bar);
      base += value;
    }
  });
  nameAxis(root, box, names, x);
  return make("figure", { class: "chart" }, legend(series), root);
}

// series: [{name, color, values, dashed}], null where there is no value.
function lineChart({ names, series, label, xLabel, low = null, high = null, format = short }) {
  const known = series.flatMap((one) => one.values).filter((value) => value !== null);
  const { root, box, y } = frame({
    low: low ?? Math.min(...known), high: high ?? Math.max(...known), label, xLabel, format,
  });
  const x = (at) => (names.length < 2 ? (box.left + box.right) / 2 : box.left + 12 + ((box.right - box.left - 24) * at) / (names.length - 1));
  for (const one of series) {
    const points = one.values.map((value, at) => (value === null ? null : [x(at), y(value)])).filter(Boolean);
    root.append(svg("polyline", { points: points.map((point) => point.join(",")).join(" "), fill: "none", stroke: one.color, "stroke-width": 2.2, "stroke-dasharray": one.dashed ? "5 4" : "none" }));
    one.values.forEach((value, at) => {
      if (value === null) return;
      root.append(svg("circle", { cx: x(at), cy: y(value), r: 3.2, fill: one.color }, svg("title", {}, `${one.name}, ${xLabel} ${names[at]}: ${format(value)}`)));
    });
  }
  nameAxis(root, box, names, x);
  return make("figure", { class: "chart" }, legend(series), root);
}

// layers: [{name, color, counts}], drawn over each other on the same edges.
function histogram({ edges, layers, label, xLabel, high }) {
  const { root, box, y } = frame({ width: 320, height: 190, low: 0, high, label, xLabel });
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const x = (value) => box.left + ((value - first) / (last - first)) * (box.right - box.left);
  for (const layer of layers) {
    let path = `M${x(first)},${y(0)}`;
    layer.counts.forEach((count, at) => { path += `L${x(edges[at])},${y(count)}L${x(edges[at + 1])},${y(count)}`; });
    path += `L${x(last)},${y(0)}`;
    root.append(svg("path", { d: path, fill: layer.line ? "none" : layer.color, stroke: layer.line ? layer.color : "none", "stroke-width": 1.6 }));
  }
  for (const tick of ticks(first, last, 5)) {
    if (tick >= first && tick <= last) root.append(svg("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, short(tick)));
  }
  return root;
}
