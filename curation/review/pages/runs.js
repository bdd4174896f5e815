const lines = (series) => series.map((one) => ({ ...one, shown: foreign(one.name) }));

// Runs keep their colour, dash and mark in all charts.
function styled(facts, series) {
  return lines(series).map((one) => ({ ...one, ...styleOf(facts.names.indexOf(one.name)) }));
}

function scoreCell(cell) {
  if (cell.mean === null) return "–";
  const spread = cell.spread !== null ? ` ± ${three(cell.spread)}` : cell.interval ? ` [${three(cell.interval[0])}, ${three(cell.interval[1])}]` : "";
  const change = cell.difference;
  return make("span", {}, make("span", { class: cell.best ? "best" : null }, three(cell.mean)), spread,
    change === null ? null : make("span", { class: "soft small" }, make("br"), `${signed(change[0])} [${signed(change[1])}, ${signed(change[2])}]`, make("br"), `p = ${three(change[3])}`));
}

function showTable(facts) {
  const scores = facts.table;
  if (scores === null) return;
  section("scores").append(
    table(["run", "seeds", ...scores.metrics], scores.rows.map((row) => [foreign(row.name), String(row.num_runs), ...row.cells.map(scoreCell)])),
    make("p", { class: "soft small" }, "Mean ± standard deviation over seeds; [95% interval over photos] for a single seed. The best of each column is bold.",
      scores.against === null ? null : [" Second lines: difference from ", foreign(scores.against), ", with its 95% interval and p by a paired bootstrap over photos, seeds pooled (not corrected for the number of comparisons)."]));
}

function showCurves(facts) {
  const charts = [["Training loss", facts.losses, "loss", "update"], ["Validation", facts.validation, "CIDEr-D", "epoch"]];
  for (const [title, series, label, xLabel] of charts) {
    // what cannot be compared shares no axes
    for (const part of facts.apart ? series.map((one) => [one]) : [series]) {
      if (!part.length || part.every((one) => one.points.length < 2)) continue;
      section("learning", ".two").append(make("div", { class: "card" }, make("h3", {}, title, facts.apart ? [": ", foreign(part[0].name)] : null), curves({ series: styled(facts, part), label, xLabel }),
        part.some((one) => one.band) ? make("p", { class: "soft small" }, "Lines: mean over seeds. Areas: lowest to highest seed.") : null));
    }
  }
}

function showEdits(facts) {
  if (!facts.edits.length) return;
  const parts = section("edits", ".two");
  const actions = [...new Set(facts.edits.flatMap((one) => Object.keys(one.actions)))];
  const rows = facts.edits.map((one) => [foreign(one.name), ...actions.map((action) => number(Math.round(one.actions[action] || 0))), percent(one.num_edited / one.num_samples, 1)]);
  parts.append(make("div", { class: "card" }, make("h3", {}, "Edits, mean over seeds"), table(["run", ...actions.map(actionName), "of the captions, any seed"], rows)));
  if (facts.edited_by_epoch.length) parts.append(make("div", { class: "card" }, make("h3", {}, "Edits until the end of an epoch"), curves({ series: styled(facts, facts.edited_by_epoch), label: "edits", xLabel: "epoch", low: 0 })));
  if (facts.overlap !== null) {
    const { names, rows: shares } = facts.overlap;
    parts.append(make("div", { class: "card" }, make("h3", {}, "The same captions?"),
      table(["", ...names.map((name) => foreign(name))], shares.map((row, at) => [foreign(names[at]), ...row.map((value, other) => (other === at ? "" : percent(value)))])),
      make("p", { class: "soft small" }, "Share of captions that both runs edited, among captions that either run edited.")));
  }
}

const picture = (one, content) => make("article", { class: "card shot" },
  make("div", { class: "photos" }, photo(one.photo, "whole", isolated(`photo ${one.image || one.id}`))), make("div", { class: "text" }, content));

function showDifferent(facts) {
  if (!facts.different.length) return;
  section("different", "p").append(`Photos whose ${facts.metric} differs most from run to run, with the caption of each run's first seed and the human captions below.`);
  section("different", ".gallery").append(...facts.different.map((one) => picture(one, [
    make("ul", { class: "by-run" }, one.captions.map((caption) => make("li", {}, foreign(caption.caption || "(no caption)", "quote"), make("span", { class: "small soft" }, `${three(caption.score)} · `, foreign(caption.run))))),
    make("ul", { class: "refs" }, one.references.map((text) => make("li", {}, foreign(text)))),
    make("div", { class: "small soft meta" }, foreign(one.image))])));
}

function showEdited(facts) {
  if (!facts.edited.length) return;
  section("edited", "p").append("Captions edited by the most runs, then most often; each with the last edit of each run.");
  section("edited", ".gallery").append(...facts.edited.map((one) => picture(one, [
    make("div", {}, foreign(one.caption)),
    make("ul", { class: "by-run" }, one.edits.map((edit) => make("li", {}, make("span", { class: `badge ${edit.action}` }, `${actionName(edit.action)} · epoch ${edit.epoch}`),
      edit.after === null ? null : foreign(edit.after, "after"), make("div", { class: "small soft" }, foreign(edit.run))))),
    make("div", { class: "small soft meta" }, foreign(one.id))])));
}

start((facts) => {
  byId("heading").append("Runs side by side");
  byId("about").append(`${counted(facts.num_runs, "run")} · epochs are counted from 0`);
  for (const show of [showLead, showTable, showCurves, showEdits, showDifferent, showEdited]) show(facts);
  details("Names in full", table(["run", "run_name"], facts.names.map((name, at) => [foreign(name), foreign(facts.full_names[at])])));
  if (facts.settings.length) details(`Settings that differ between the runs (${facts.settings.length})`, table(["setting", ...facts.names.map((name) => foreign(name))], facts.settings.map((row) => row.map((value) => foreign(value)))));
});
