// Charts as SVG. Sizes are of the view box; the page scales them. Colours are Okabe and Ito's, which
// colour-blind people tell apart; lines differ in dashes and marks, too.

const COLORS = { remove: "#d55e00", replace_caption: "#0072b2", replace_image: "#009e73", down_weight: "#cc79a7", mask_words: "#8a6d00", set_bucket: "#707070" };
const PLAIN = { color: "currentColor", dash: "5 4", mark: "none" };
const STYLES = [
  { color: "#0072b2", dash: "none", mark: "circle" },
  { color: "#d55e00", dash: "7 3", mark: "square" },
  { color: "#009e73", dash: "2 3", mark: "triangle" },
  { color: "#cc79a7", dash: "8 3 2 3", mark: "diamond" },
  { color: "#e69f00", dash: "4 2", mark: "circle" },
  { color: "#56b4e9", dash: "none", mark: "square" },
];
const GROUP_STYLES = { all: PLAIN, "never edited": STYLES[0], "edited (before it)": STYLES[1], "planted faults": STYLES[4], sound: STYLES[2] };
const LAYERS = { seen: { color: "#a9c4da" }, edited: { color: "#d55e00" }, faulty: { color: "#e69f00", line: true } };

const styleOf = (at) => STYLES[at % STYLES.length];

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
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

function frame({ width = 460, height = 230, low, high, label, xLabel, alt = "", format = short }) {
  const box = { left: 52, right: width - 12, top: 22, bottom: height - 38 };
  const levels = ticks(low, high);
  const [first, last] = [levels[0], levels[levels.length - 1]];
  const y = (value) => box.bottom - ((value - first) / (last - first)) * (box.bottom - box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label} by ${xLabel}${alt}` });
  for (const level of levels) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), class: "grid" }));
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

function marker(mark, x, y, color, size = 3.4) {
  const place = { fill: color };
  if (mark === "circle") return svg("circle", { cx: x, cy: y, r: size, ...place });
  if (mark === "square") return svg("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, ...place });
  const top = `${x},${y - size * 1.3}`;
  const shape = mark === "triangle" ? [top, `${x - size * 1.2},${y + size}`, `${x + size * 1.2},${y + size}`]
    : [top, `${x + size * 1.3},${y}`, `${x},${y + size * 1.3}`, `${x - size * 1.3},${y}`];
  return svg("polygon", { points: shape.join(" "), ...place });
}

// A sample of each line or area beside its name.
function legend(series) {
  return make("div", { class: "legend" }, series.map((one) => {
    const sample = svg("svg", { viewBox: "0 0 30 12", "aria-hidden": "true", class: "sample" });
    if (one.mark === undefined && !one.line) sample.append(svg("rect", { x: 4, y: 1, width: 12, height: 10, fill: one.color }));
    else sample.append(svg("line", { x1: 0, x2: 30, y1: 6, y2: 6, stroke: one.color, "stroke-width": 2.2, "stroke-dasharray": one.dash || "none" }));
    if (one.mark && one.mark !== "none") sample.append(marker(one.mark, 15, 6, one.color));
    return make("span", {}, sample, one.shown || one.name);
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

// Points of a curve over epochs, without those that have no value.
const pointsOf = (epochs, values) => epochs.map((epoch, at) => [epoch, values[at]]).filter((point) => point[1] !== null);
const groupLine = (one) => ({ name: one.name, ...(GROUP_STYLES[one.name] || PLAIN), points: pointsOf(one.epochs, one.values) });

// series: [{name, color, dash, mark, points: [[x, y]], band: [[x, low, high]]}]. `name` is text of
// ours or `shown` is what the legend shows in its place.
function curves({ series, label, xLabel, low = null, high = null, format = short }) {
  const all = series.flatMap((one) => [...one.points, ...(one.band || []).flatMap(([x, from, to]) => [[x, from], [x, to]])]);
  const [xs, ys] = [all.map((point) => point[0]), all.map((point) => point[1])];
  const story = series.filter((one) => one.points.length).map((one) => `${isolated(one.name)} from ${format(one.points[0][1])} to ${format(one.points[one.points.length - 1][1])}`);
  const { root, box, y } = frame({
    low: low ?? Math.min(...ys), high: high ?? Math.max(...ys), label, xLabel, format, alt: `: ${story.join(", ")}`,
  });
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const x = (value) => (first === last ? (box.left + box.right) / 2 : box.left + 12 + ((box.right - box.left - 24) * (value - first)) / (last - first));
  const many = Math.max(...series.map((one) => one.points.length)) > 40;
  for (const one of series) {
    if (one.band) root.append(svg("polygon", { points: [...one.band.map(([at, from]) => [x(at), y(from)]), ...[...one.band].reverse().map(([at, , to]) => [x(at), y(to)])].join(" "), fill: one.color, opacity: 0.15 }));
    root.append(svg("polyline", { points: one.points.map(([at, value]) => `${x(at)},${y(value)}`).join(" "), fill: "none", stroke: one.color, "stroke-width": 2, "stroke-dasharray": one.dash }));
    if (many || one.mark === "none") continue;
    for (const [at, value] of one.points) {
      const node = marker(one.mark, x(at), y(value), one.color);
      node.append(svg("title", {}, `${isolated(one.name)}, ${xLabel} ${at}: ${format(value)}`));
      root.append(node);
    }
  }
  for (const tick of ticks(first, last, 6)) {
    const whole = Number.isInteger(tick) || !xs.every(Number.isInteger);
    if (tick >= first && tick <= last && whole) root.append(svg("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, short(tick)));
  }
  return make("figure", { class: "chart" }, series.length > 1 ? legend(series) : null, root);
}

const lossLayers = (epoch) => [{ counts: epoch.seen, ...LAYERS.seen }, { counts: epoch.edited, ...LAYERS.edited }, ...(epoch.faulty ? [{ counts: epoch.faulty, ...LAYERS.faulty }] : [])];

// layers: [{name, color, counts}], drawn over each other on the same edges; at `line` stands a rule.
function histogram({ width = 320, height = 190, edges, layers, label, xLabel, high, line = null, alt = "" }) {
  const { root, box, y } = frame({ width, height, low: 0, high, label, xLabel, alt });
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const x = (value) => box.left + ((value - first) / (last - first)) * (box.right - box.left);
  for (const layer of layers) {
    let path = `M${x(first)},${y(0)}`;
    layer.counts.forEach((count, at) => { path += `L${x(edges[at])},${y(count)}L${x(edges[at + 1])},${y(count)}`; });
    path += `L${x(last)},${y(0)}`;
    root.append(svg("path", { d: path, fill: layer.line ? "none" : layer.color, stroke: layer.line ? layer.color : "none", "stroke-width": 1.6 }));
  }
  if (line !== null) {
    const right = x(line) > (box.left + box.right) / 2;
    root.append(svg("line", { x1: x(line), x2: x(line), y1: box.top, y2: box.bottom, stroke: "currentColor", "stroke-width": 1.4, "stroke-dasharray": "4 3" }));
    root.append(svg("text", { x: x(line) + (right ? -4 : 4), y: box.top + 9, "text-anchor": right ? "end" : "start" }, short(line)));
  }
  for (const tick of ticks(first, last, 5)) {
    if (tick >= first && tick <= last) root.append(svg("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, short(tick)));
  }
  return root;
}
