// The page of `captioning check`: counts by kind of issue, then the worst captions of each kind.

function card(item, pictures) {
  const picture = item.photo < 0
    ? make("div", { class: "none soft small" }, "no picture")
    : make("img", { src: `data:image/jpeg;base64,${pictures[item.photo]}`, alt: "", loading: "lazy" });
  const value = make("span", { class: "chance" }, item.value);
  return make("figure", { class: "card" }, picture, make("figcaption", {},
    make("p", {}, item.changed ? mended(item.changed) : foreign(item.caption)),
    make("p", { class: "small" }, value, " ", foreign(item.reason)),
    make("p", { class: "small soft" }, foreign(item.file))));
}

function group(entry, pictures) {
  const shown = entry.items.length < entry.count ? `the worst ${entry.items.length} of ${number(entry.count)}` : `all ${number(entry.count)}`;
  const about = `${shown}; the number is ${entry.measures}, flagged ${entry.low_is_bad ? "below" : "from"} ${entry.threshold}`;
  return make("section", { id: entry.name },
    make("h2", {}, entry.title), make("p", { class: "soft small" }, about),
    make("div", { class: "gallery" }, entry.items.map((item) => card(item, pictures))));
}

async function show() {
  const facts = await unpack(blocks("facts")[0]);
  const pictures = blocks("picture").map((node) => node.textContent);
  byId("heading").append("Check of ", foreign(facts.source));
  byId("about").append(foreign(facts.head));
  const found = facts.groups.filter((entry) => entry.count), others = facts.groups.filter((entry) => !entry.count);
  if (found.length) byId("counts").append(table(["flagged", "issue", "expected to be wrong"], found.map((entry) => [
    number(entry.count), make("a", { href: `#${entry.name}` }, entry.title), entry.precision === null ? "" : percent(entry.precision),
  ])));
  if (others.length) byId("counts").append(make("p", { id: "unflagged", class: "soft small" }, `Nothing flagged: ${others.map((entry) => entry.title).join("; ")}.`));
  byId("notes").append(...facts.notes.map((note) => make("li", {}, foreign(note))));
  byId("groups").append(...found.map((entry) => group(entry, pictures)));
  byId("left-out").hidden = facts.left_out.length === 0;
  byId("left-out-rows").append(table(["", "item", "rule"], facts.left_out.map(([item, rule], place) => [
    number(place + 1), foreign(item), foreign(rule),
  ])));
  document.body.dataset.ready = "yes";
}

show();
