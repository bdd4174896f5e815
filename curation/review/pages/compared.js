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
  parts.append(make("p", { class: "soft small" }, "Mean ± standard deviation over seeds. Differences are means over photos, seeds pooled, with the interval and p of a paired bootstrap over photos; corpus BLEU is not a mean over photos."));
}

// A generated caption, every second piece of which names what the image does not show.
function said(pieces) {
  if (pieces.join("") === "") return foreign("(no caption)", "quote");
  return make("bdi", { dir: "auto", class: "quote before" }, pieces.map((piece, place) => (place % 2 ? make("del", { title: "not in the image" }, piece) : piece)));
}

function changedCard(one, names) {
  return make("article", { class: "card shot" },
    make("div", { class: "photos" }, photo(one.photo, "whole", isolated(`photo ${one.image}`))),
    make("div", { class: "text" },
      make("ul", { class: "by-run" }, one.captions.map((pieces, at) => make("li", {}, said(pieces), make("span", { class: "small soft" }, `${three(one.scores[at])} · `, foreign(names[at]))))),
      make("ul", { class: "refs" }, one.references.map((text) => make("li", {}, foreign(text)))),
      make("div", { class: "small soft meta" }, foreign(one.image))));
}

function removedCard(edit) {
  return make("article", { class: "card shot" }, make("div", { class: "photos" }, photo(edit.photo, "whole", isolated(`image ${edit.image}`))),
    make("div", { class: "text" },
      make("div", { class: "badges" }, make("span", { class: `badge ${edit.fault ? "remove" : "fault"}` }, edit.fault ? "wrong: rightly removed" : "correct: removed by mistake")),
      make("div", {}, foreign(edit.before, "before gone")),
      make("div", { class: "small soft meta" }, foreign(edit.reason))));
}

start((facts) => {
  byId("heading").append(facts.heading ?? "Two runs on one test set");
  byId("about").append(...sentence(facts.about ?? [`${counted(facts.num_photos, "photo")} that neither run has seen`]));
  showLead(facts);
  showScores(facts);
  if (facts.groups.length) {
    tabs("captions", facts.groups, (one) => changedCard(one, facts.names));
    section("captions", "p").append(facts.removed
      ? `By ${facts.scores.original.leading}. The first two captions are generated, with their score. Objects, colours and places that the image does not show are struck out. Reference captions are below.`
      : `By ${facts.scores.original.leading}, mean over seeds; with the caption of each run's first seed and the human captions below.`);
  }
  if (facts.removed) {
    section("removed", "p").append(facts.summary);
    section("removed", ".gallery").append(...facts.removed.map(removedCard));
  }
  details("Runs", table(["folder", "seed", "checkpoint"], facts.runs.map((row) => row.map((value) => foreign(value)))));
  if (facts.settings.length) details(`Settings that differ between the runs (${facts.settings.length})`, table(["setting", ...facts.names.map((name) => foreign(name))], facts.settings.map((row) => row.map((value) => foreign(value)))));
});
