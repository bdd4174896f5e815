// One set of pictures for one annotator. Every change is sent at once, one after the other.

const MEMORY = "study-annotator";
let sheet = null;
let place = 0;
const unsent = outbox("api/annotation", () => `${sheet.annotator} · saved`);

function show(name) {
  for (const part of ["welcome", "work", "finished"]) byId(part).hidden = part !== name;
}

const item = () => sheet.items[place];
const numDone = () => sheet.items.filter((one) => one.done).length;

function keep(one) {
  unsent.put(one.number, { annotator: sheet.annotator, number: one.number, categories: one.categories, comment: one.comment, done: one.done });
}

function showGroups() {
  const groups = new Map();
  for (const category of sheet.categories) {
    if (!groups.has(category.group)) groups.set(category.group, []);
    groups.get(category.group).push(category);
  }
  byId("groups").replaceChildren(...[...groups].map(([name, members]) => make("fieldset", {}, make("legend", {}, name),
    members.map((category) => make("label", {},
      make("input", { type: "checkbox", value: category.key, on: { change: tick } }),
      make("span", {}, category.label, make("small", {}, category.hint)))))));
}

const boxes = () => [...byId("groups").querySelectorAll("input")];

function tick() {
  item().categories = boxes().filter((box) => box.checked).map((box) => box.value);
  nameNext();
  keep(item());
}

function nameNext() {
  byId("next").textContent = item().categories.length || item().comment.trim() ? "Next" : "No error, next";
}

function showItem() {
  const one = item();
  byId("picture").src = `image/${one.number}`;
  byId("captions").replaceChildren(...one.captions.map((caption) => make("li", {}, foreign(caption))));
  for (const box of boxes()) box.checked = one.categories.includes(box.value);
  byId("comment").value = one.comment;
  byId("back").disabled = place === 0;
  byId("place").textContent = `${place + 1} of ${sheet.items.length}`;
  byId("bar").style.width = `${(100 * numDone()) / sheet.items.length}%`;
  nameNext();
  window.scrollTo({ top: 0, behavior: "instant" }); // smoothly, buttons would move under the pointer
  document.body.dataset.item = one.number;
  show("work");
}

async function finish() {
  await unsent.sent();
  show("finished");
  byId("another").hidden = false;
  const fresh = await ask("api/sheet", { annotator: sheet.annotator });
  byId("more").textContent = fresh.missing ? `The study still wants ${number(fresh.missing)} annotations.` : "The study has all the annotations that it wants.";
}

function go(step) {
  place += step;
  if (place < sheet.items.length) showItem();
  else finish().catch((error) => say(error.message, true));
}

async function open(annotator, another = false) {
  const fresh = await ask("api/sheet", { annotator, another });
  if (another && !fresh.items.length) {
    byId("more").textContent = "You have done every set.";
    byId("another").hidden = true;
    return;
  }
  sheet = fresh;
  localStorage.setItem(MEMORY, annotator);
  showGroups();
  say(`${annotator} · saved`);
  const open = sheet.items.findIndex((one) => !one.done);
  place = open < 0 ? sheet.items.length : open;
  go(0);
}

function listen() {
  byId("welcome").addEventListener("submit", (event) => {
    event.preventDefault();
    open(byId("annotator").value.trim()).catch((error) => say(error.message, true));
  });
  byId("comment").addEventListener("input", () => { item().comment = byId("comment").value; nameNext(); });
  byId("comment").addEventListener("change", () => keep(item()));
  byId("next").addEventListener("click", () => {
    item().done = true;
    keep(item());
    go(1);
  });
  byId("back").addEventListener("click", () => go(-1));
  byId("review").addEventListener("click", () => { place = 0; showItem(); });
  byId("another").addEventListener("click", () => open(sheet.annotator, true).catch((error) => say(error.message, true)));
  window.addEventListener("beforeunload", (event) => { if (unsent.isWaiting()) event.preventDefault(); });
}

listen();
byId("annotator").value = localStorage.getItem(MEMORY) || "";
show("welcome");
document.body.dataset.ready = "yes";
