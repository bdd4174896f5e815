// What pages of runs share.

// Parts of a sentence: texts of ours, and {text} of elsewhere.
const sentence = (parts) => parts.map((part) => (typeof part === "string" ? part : foreign(part.text)));
const three = (value) => (value === null || value === undefined ? "–" : Math.abs(value) < 0.0005 ? "0.000" : value.toFixed(3));
// With its sign, but for a difference that rounds to nought.
const signed = (value) => (Math.abs(value) < 0.0005 ? "" : value < 0 ? "−" : "+") + three(Math.abs(value));

function showLead(facts) {
  const story = make("p", { class: "story" }, facts.lead.flatMap((parts) => [...sentence(parts), " "]));
  const tiles = facts.tiles.map((one) => make("div", { class: `card tile ${one.kind}` }, make("b", {}, one.value), make("span", { class: "soft small" }, one.name)));
  const notes = facts.notes.map((note) => make("li", {}, foreign(note)));
  byId("lead").append(story, tiles.length ? make("div", { class: "tiles" }, tiles) : "");
  if (notes.length) byId("lead").append(make("ul", { class: "notes small" }, notes));
}

// Show a section and give where its parts go.
function section(id, selector = null) {
  const node = byId(id);
  node.hidden = false;
  return selector === null ? node : node.querySelector(selector);
}

// Buttons of which one is pressed, and the cards of it.
function tabs(id, groups, card) {
  const node = section(id);
  const show = (chosen) => {
    node.querySelector(".gallery").replaceChildren(...groups[chosen].items.map(card));
    [...node.querySelector(".tabs").children].forEach((tab, at) => tab.setAttribute("aria-pressed", String(at === chosen)));
  };
  node.querySelector(".tabs").append(...groups.map((group, at) => make("button", { on: { click: () => show(at) } }, group.name)));
  show(0);
}

function details(name, ...content) {
  byId("details").append(make("details", {}, make("summary", {}, name), content));
}

async function unfold(show) {
  const facts = await unpack(blocks("facts")[0]);
  pictures = blocks("picture").map((node) => node.textContent);
  show(facts);
  byId("details").hidden = byId("details").children.length < 2;
  showLinks();
  document.body.dataset.ready = "yes";
}

function start(show) {
  unfold(show).catch((error) => {
    byId("heading").textContent = "This page could not be read";
    byId("about").textContent = `${error}. Use a browser from 2023 or later.`;
  });
}
