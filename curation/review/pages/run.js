function showLearning(facts) {
  const losses = facts.losses;
  const validation = facts.validation !== null && facts.validation.epochs.length > 1 ? facts.validation : null;
  if (losses === null && validation === null) return;
  const parts = section("learning", ".two");
  if (losses !== null) {
    parts.append(make("div", { class: "card" }, make("h3", {}, "Training loss"),
      curves({ series: [{ name: "loss", ...STYLES[0], points: losses }], label: "loss", xLabel: "update" })));
  }
  if (validation !== null) {
    const series = validation.series.map((one, at) => ({ name: one.name, ...styleOf(at), points: pointsOf(validation.epochs, one.values) }));
    const start = validation.start.length ? `Before training: ${validation.start.map(([name, value]) => `${name} ${three(value)}`).join(", ")}.` : null;
    // the score that training begins with, as a level
    for (const [name, value] of validation.start.filter((one) => one[0] === "CIDEr-D")) {
      series.push({ name: `${name} before training`, ...PLAIN, points: [validation.epochs[0], validation.epochs[validation.epochs.length - 1]].map((epoch) => [epoch, value]) });
    }
    const high = Math.max(0.001, ...series.flatMap((one) => one.points.map((point) => point[1]))); // smaller scores are noughts
    parts.append(make("div", { class: "card" }, make("h3", {}, "Validation scores"), curves({ series, label: "score", xLabel: "epoch", high }), start === null ? null : make("p", { class: "soft small" }, start)));
  }
}

// An interval beside the others, on one scale from 0.
function range(row, most) {
  const x = (value) => 2 + (96 * Math.max(0, value)) / most;
  const root = svg("svg", { viewBox: "0 0 100 12", class: "range", "aria-hidden": "true" });
  root.append(svg("line", { x1: 0, x2: 100, y1: 6, y2: 6, class: "grid" }));
  if (row.interval) root.append(svg("line", { x1: x(row.interval[0]), x2: x(row.interval[1]), y1: 6, y2: 6, stroke: "#0072b2", "stroke-width": 5 }));
  root.append(svg("circle", { cx: x(row.score), cy: 6, r: 3, fill: "currentColor" }));
  return root;
}

function showScores(facts) {
  const test = facts.test;
  if (test === null) return;
  const parts = section("scores", ".two");
  const most = Math.max(1e-9, ...test.rows.flatMap((row) => [row.score, ...(row.interval || [])]));
  const rows = test.rows.map((row) => [foreign(row.name), three(row.score), row.interval ? `${three(row.interval[0])} to ${three(row.interval[1])}` : "–", range(row, most)]);
  const how = make("p", { class: "soft small" }, `${counted(test.num_images, "photo")}. Intervals: bootstrap over photos, of this one training; seeds differ, too.`,
    test.tokenizer ? [" Tokenizer: ", foreign(test.tokenizer), "."] : null);
  parts.append(make("div", { class: "card" }, table(["metric", "score", "95% interval", ""], rows), how));
  const bars = test.distribution;
  if (bars === null) return;
  parts.append(make("div", { class: "card" }, make("h3", {}, `${bars.metric} of single photos`),
    histogram({ width: 460, height: 230, edges: bars.edges, layers: [{ counts: bars.counts, ...LAYERS.seen }], label: "photos", xLabel: bars.metric, high: Math.max(1, ...bars.counts), line: +three(bars.median), alt: `: half of the photos are below ${three(bars.median)}` }),
    make("p", { class: "soft small" }, "Dashed: the median photo.")));
}

function ruleTable(curation) {
  const several = new Set(curation.rules.map((one) => one.policy)).size > 1;
  const head = ["epoch", ...(several ? ["policy"] : []), "action", "captions", "their losses", "reason of the first"];
  return table(head, curation.rules.map((one) => [
    one.epoch < 0 ? "before" : String(one.epoch), ...(several ? [foreign(one.policy)] : []), actionName(one.action), number(one.count),
    one.losses === null ? "–" : `${one.losses[0]} to ${one.losses[1]}`, foreign(one.reason)]));
}

function showEdits(facts) {
  const curation = facts.curation;
  if (curation === null) return;
  const node = section("losses");
  const link = facts.edits_page === null ? null : make("p", {}, make("a", { href: facts.edits_page }, "All edits, to search, accept and undo"));
  if (!curation.rules.length) node.append(make("p", {}, "No caption was changed: the run only recorded losses."));
  const actions = [...new Set(curation.actions.map((one) => one.action))];
  const epochs = [...new Set([...curation.curves.flatMap((one) => one.epochs), ...curation.actions.map((one) => one.epoch)])].sort((a, b) => a - b);
  const count = (epoch, action) => curation.actions.filter((one) => one.epoch === epoch && one.action === action).reduce((sum, one) => sum + one.count, 0);
  const charts = [];
  if (actions.length) {
    const series = actions.map((action) => ({ name: actionName(action), color: COLORS[action] || "#9aa3ad", values: epochs.map((epoch) => count(epoch, action)) }));
    charts.push(make("div", { class: "card" }, make("h3", {}, "Edits by epoch"), stackedBars({ names: epochs, series, label: "captions", xLabel: "epoch" })));
  }
  const lines = curation.curves.map(groupLine).filter((one) => one.points.length);
  if (lines.length) charts.push(make("div", { class: "card" }, make("h3", {}, "Mean loss by group"), curves({ series: lines, label: curation.unit, xLabel: "epoch" })));
  node.append(make("div", { class: "two" }, charts));
  const bars = curation.histograms;
  if (bars !== null) {
    const high = Math.max(1, ...bars.epochs.flatMap((one) => one.seen));
    const layers = [{ name: "all captions of the epoch", ...LAYERS.seen }, { name: "edited at its end", ...LAYERS.edited }];
    if (curation.truth !== null) layers.push({ name: "planted faults", ...LAYERS.faulty });
    node.append(make("h3", { class: "after" }, "Losses of all captions, and of those edited"), legend(layers),
      make("div", { class: "small-multiples" }, bars.epochs.map((one) => make("div", { class: "card" },
        make("h3", {}, `Epoch ${one.epoch}: ${number(one.edited.reduce((sum, bin) => sum + bin, 0))} edited`),
        histogram({ edges: bars.edges, label: "captions", xLabel: curation.unit, high, line: one.threshold, layers: lossLayers(one), alt: one.threshold === null ? "" : `: edited from ${short(one.threshold)} on` })))),
      make("p", { class: "soft small" }, "Dashed: the lowest edited loss, if nearly all captions above it were edited. The last bar holds all higher losses."));
  }
  if (curation.rules.length) node.append(make("h3", { class: "after" }, "Rules"), ruleTable(curation));
  if (link) node.append(link);
}

function showBeforeAfter(facts) {
  const shown = facts.curation === null ? [] : facts.curation.shown;
  if (!shown.length) return;
  section("before-after", "p").append("The first edits of each epoch, which concern the worst captions by the policy's score.");
  const epochs = [...new Set(shown.map((edit) => edit.epoch))];
  tabs("before-after", epochs.map((epoch) => ({ name: epoch < 0 ? "before training" : `epoch ${epoch}`, items: shown.filter((edit) => edit.epoch === epoch) })), card);
}

const example = (metric) => (one) => make("article", { class: "card shot" },
  make("div", { class: "photos" }, photo(one.photo, "whole", isolated(`photo ${one.image}`))),
  make("div", { class: "text" },
    make("div", {}, foreign(one.caption || "(no caption)", "quote")),
    make("ul", { class: "refs" }, one.references.map((text) => make("li", {}, foreign(text)))),
    make("div", { class: "small soft meta" }, `${metric} ${three(one.score)} · `, foreign(one.image))));

function showExamples(facts) {
  if (facts.examples === null) return;
  const metric = facts.test.distribution.metric;
  section("captions", "p").append(`The model's caption is bold, with human captions below. Best and worst by ${metric}; random photos are drawn from the others.`);
  tabs("captions", facts.examples, example(metric));
}

function showDetails(facts) {
  const text = (value) => foreign(value);
  if (facts.settings.length) {
    details(`Settings that differ from the defaults (${facts.settings.length})`, table(["setting", "this run", "default"], facts.settings.map((row) => row.map(text))));
  }
  if (facts.versions.length) details("Command, versions, machine", table(["", "of this run"], facts.versions.map((row) => row.map(text))));
  if (facts.timing.length) {
    details("Time", table(["epoch", "seconds", "captions a second", "updates until its end"], facts.timing.map((one, at) => [
      String(at), Number(one.seconds).toFixed(1), number(Math.round(one.captions_per_second)), number(one.updates)])));
  }
  if (facts.validation !== null) {
    details("Validation scores", table(["epoch", ...facts.validation.series.map((one) => one.name)], facts.validation.epochs.map((epoch, at) => [
      String(epoch), ...facts.validation.series.map((one) => three(one.values[at]))])));
  }
  if (facts.curation !== null && facts.curation.truth !== null) {
    details("Planted faults", faultsTable(facts.curation.truth, text));
  }
  if (facts.dropped.length) {
    details("Data left out", table(["roster", "rule", "items", "such as"], facts.dropped.map((one) => [text(one.roster), text(one.rule), number(one.count), text(one.items.join(", "))])));
  }
}

start((facts) => {
  byId("heading").append(...sentence(facts.title));
  byId("about").append("Run ", foreign(facts.name), ...(facts.began.length ? [" · ", ...sentence(facts.began)] : []), " · seed ", foreign(facts.seed), ...(facts.curation === null ? [] : [" · policy ", foreign(facts.curation.policy)]), " · epochs are counted from 0");
  for (const show of [showLead, showLearning, showScores, showEdits, showBeforeAfter, showExamples, showDetails]) show(facts);
});
