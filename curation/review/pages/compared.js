const OF_REFERENCES = { original: "Against the captions of the first run's data", cleaned: "Against the captions of the second run's data" };
const withSpread = (mean, spread) => (spread === null ? three(mean) : `${three(mean)} ± ${three(spread)}`);

function scoreRow(row) {
  const known = row.difference !== undefined;
  return [row.metric, ...row.means.map((mean, at) => withSpread(mean, row.spreads[at])),
    known ? signed(row.difference) : "–", known ? `${signed(row.low)} to ${signed(row.high)}` : "–", known ? three(row.p_value) : "–"];
}

function showScores(facts) {
  const parts = section("scores");
  for (const [name, found] of Object.entries(facts.scores)) {
    parts.append(make("h3", { class: "after" }, `${OF_REFERENCES[name]} (${counted(found.num_photos, "photo")})`),
      table(["metric", ...facts.names.map((one) => foreign(one)), "difference", "95% interval", "p"], found.rows.map(scoreRow)));
  }
  parts.append(make("p", { class: "soft small" }, "Mean ± standard deviation over seeds. Differences are means over photos, seeds pooled, with the interval and p of a paired bootstrap over photos; corpus BLEU is no such mean."));
}

function changedCard(one, names) {
  return make("article", { class: "card shot" },
    make("div", { class: "photos" }, photo(one.photo, "whole", isolated(`photo ${one.image}`))),
    make("div", { class: "text" },
      make("ul", { class: "by-run" }, one.captions.map((caption, at) => make("li", {}, foreign(caption || "(no caption)", "quote"), make("span", { class: "small soft" }, `${three(one.scores[at])} · `, foreign(names[at]))))),
      make("ul", { class: "refs" }, one.references.map((text) => make("li", {}, foreign(text)))),
      make("div", { class: "small soft meta" }, foreign(one.image))));
}

start((facts) => {
  byId("heading").append("Two runs on one test set");
  byId("about").append(`${counted(facts.num_photos, "photo")} that neither has seen`);
  showLead(facts);
  showScores(facts);
  if (facts.groups.length) {
    tabs("captions", facts.groups, (one) => changedCard(one, facts.names));
    section("captions", "p").append(`By ${facts.scores.original.leading}, mean over seeds; with the caption of each run's first seed and, below, people's.`);
  }
  details("Runs", table(["folder", "seed", "checkpoint"], facts.runs.map((row) => row.map((value) => foreign(value)))));
  if (facts.settings.length) details(`Settings in which they differ (${facts.settings.length})`, table(["setting", ...facts.names.map((name) => foreign(name))], facts.settings.map((row) => row.map((value) => foreign(value)))));
});
