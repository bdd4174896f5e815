// The page of `captioning check`: counts by kind of issue, then the worst captions of each kind.

// A long caption with the sentence that fits its photo least.
function marked([before, sentence, after]) {
  return [foreign(before), make("mark", { title: "fits the photo least" }, foreign(sentence)), foreign(after)];
}

function card(entry, item, pictures) {
  const image = item.photo < 0
    ? make("div", { class: "none soft small" }, "no picture")
    : make("img", { src: `data:image/jpeg;base64,${pictures[item.photo]}`, alt: "", loading: "lazy" });
  const opened = (what) => (item.link === null ? what : make("a", { href: item.link, target: "_blank", rel: "noopener", title: "open the photo" }, what));
  const value = make("span", { class: "chance" }, item.value);
  const others = item.others.map((text) => make("li", {}, foreign(text)));
  return make("figure", { class: "card" }, opened(image), make("figcaption", {},
    make("p", {}, item.changed ? mended(item.changed) : item.marked ? marked(item.marked) : foreign(item.caption)),
    make("p", { class: "small" }, `${entry.measures}: `, value),
    make("p", { class: "small" }, foreign(item.reason)),
    item.judged ? make("p", { class: "small judged" }, foreign(item.judged)) : null,
    others.length ? make("div", { class: "small soft others" }, others.length > 1 ? "The photo's other captions:" : "The photo's other caption:", make("ul", {}, others)) : null,
    make("p", { class: "small soft" }, opened(foreign(item.file)))));
}

function group(entry, pictures) {
  const shown = entry.items.length < entry.count ? `the worst ${entry.items.length} of ${number(entry.count)}` : `all ${number(entry.count)}`;
  const kept = entry.kept ? " Reported only: the cleaned dataset keeps these captions." : "";
  const about = `Shown: ${shown}. ${entry.kept ? "Reported" : "Flagged"}: ${entry.measures}, ${entry.low_is_bad ? `below ${entry.threshold}` : `${entry.threshold} or more`}.${kept}`;
  const gallery = (items) => make("div", { class: "gallery" }, items.map((item) => card(entry, item, pictures)));
  return make("section", { id: entry.name },
    make("h2", {}, entry.title), entry.count ? [make("p", { class: "soft small" }, about), gallery(entry.items)] : null,
    entry.less_sure.length ? [make("h3", {}, "Less sure"), make("p", { class: "soft small" }, `the next ${entry.less_sure.length} captions below ${entry.threshold}, which no check flags`), gallery(entry.less_sure)] : null);
}

// What to do next, and the command for it.
function steps(entries) {
  byId("next").hidden = entries.length === 0;
  byId("next-steps").append(...entries.map(([what, command]) => make("li", {}, `${what}: `, make("code", {}, foreign(command)))));
}

async function show() {
  const facts = await unpack(blocks("facts")[0]);
  const pictures = blocks("picture").map((node) => node.textContent);
  byId("heading").append("Check of ", foreign(facts.source));
  byId("about").append(foreign(facts.head));
  const found = facts.groups.filter((entry) => entry.count), others = facts.groups.filter((entry) => !entry.count);
  const known = found.some((entry) => entry.precision !== null);
  if (found.length) byId("counts").append(table(["flagged", "issue", ...(known ? ["expected to be wrong"] : [])], found.map((entry) => [
    number(entry.count), make("a", { href: `#${entry.name}` }, entry.title), ...(known ? [entry.precision === null ? "" : percent(entry.precision)] : []),
  ])));
  if (others.length) byId("counts").append(make("p", { id: "unflagged", class: "soft small" }, `Nothing flagged: ${others.map((entry) => entry.title).join("; ")}.`));
  byId("notes").append(...facts.notes.map((note) => {
    const entry = facts.groups.find((one) => note.startsWith(`${one.name}: `));
    return make("li", {}, entry ? [`${entry.title}: `, foreign(note.slice(entry.name.length + 2))] : foreign(note));
  }));
  byId("groups").append(...facts.groups.filter((entry) => entry.count || entry.less_sure.length).map((entry) => group(entry, pictures)));
  steps(facts.next);
  byId("left-out").hidden = facts.left_out.length === 0;
  byId("left-out-rows").append(table(["", "item", "rule"], facts.left_out.map(([item, rule], place) => [
    number(place + 1), foreign(item), foreign(rule),
  ])));
  showLinks();
  document.body.dataset.ready = "yes";
}

show();
