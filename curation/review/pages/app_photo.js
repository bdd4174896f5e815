// Captions of a photo. The server has the photo under a number; settings may change without sending it again.

const SETTINGS = ["num_captions", "beam_size", "min_words", "max_words", "seed"];
const HINT = "Select a word to see where the captioner looked when it generated the word (← and →: other words). The percentage is the word's probability given the words before it.";
const NOWHERE = "This captioner does not attend to parts of the photo, so the photo shows no highlights. The percentage is the word's probability given the words before it.";
let models = [];
let maxBytes = 0;
let photo = null; // { number, name }
let result = null;
let caption = null;
let word = null;
let asked = 0; // of the newest question: answers to earlier ones are not shown

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

const tooLarge = (file) => `${isolated(file.name)} has ${(file.size / 1e6).toFixed(0)} MB, but at most ${maxBytes / 1e6} MB are allowed: save a smaller copy.`;

async function take(file) {
  const turn = ++asked;
  problem("");
  clear();
  if (file.size > maxBytes) return problem(tooLarge(file));
  say("opening the photo…");
  try {
    const sent = await upload("api/photo", file);
    if (turn !== asked) return;
    photo = { number: sent.photo, name: file.name };
    await showPhoto(sent);
  } catch (error) {
    if (turn !== asked) return;
    say("");
    return problem(error.refused ? `${isolated(file.name)}: ${error.message}` : "The program does not answer: check in its terminal that it still runs.");
  }
  await describe();
}

async function showPhoto(sent) {
  byId("photo").src = `photo/${sent.photo}`;
  byId("file-name").replaceChildren(foreign(photo.name), ` ${sent.width} × ${sent.height}`);
  byId("shown").hidden = false;
  await byId("photo").decode();
}

function clear() {
  photo = result = caption = word = null;
  byId("shown").hidden = true;
  showResult();
}

// "dog, grass or lawn" is [["dog"], ["grass", "lawn"]].
const wanted = () => byId("must_include").value.split(",")
  .map((part) => part.split(/\s+or\s+/).map((text) => text.trim()).filter(Boolean)).filter((group) => group.length);

function question() {
  const record = { photo: photo.number, name: photo.name, model: byId("model").selectedIndex, diverse: byId("diverse").checked, must_include: wanted() };
  for (const name of SETTINGS) {
    const value = byId(name).value;
    record[name] = value === "" || (name === "seed" && !record.diverse) ? null : Number(value);
  }
  return record;
}

async function describe() {
  if (!photo) return problem("Choose a photo first.");
  const turn = ++asked;
  problem("");
  say("captioning…");
  byId("photo-part").ariaBusy = "true";
  try {
    const answer = await ask("api/caption", question());
    if (turn !== asked) return;
    result = answer;
    caption = result.captions[0] ?? null;
    word = null;
    if (caption && caption.has_words === false) problem("The search found no caption with all of these words; this is the best caption without them.");
  } catch (error) {
    if (turn !== asked) return;
    result = caption = word = null;
    problem(error.refused ? error.message : "The program does not answer: check in its terminal that it still runs.");
  }
  say("");
  byId("photo-part").ariaBusy = "false";
  showResult();
}

function showResult() {
  const found = result ? result.captions : [];
  byId("captions").replaceChildren(...found.map((one) => make("li", {},
    make("button", { type: "button", "aria-pressed": String(one === caption), on: { click: () => choose(one) } },
      foreign(one.caption), one.score === null ? null : make("small", { title: "log-probability, as the search compares captions" }, `score ${one.score.toFixed(2)}`)))));
  showWords();
}

function choose(one) {
  caption = one;
  word = null;
  byId("captions").querySelectorAll("button").forEach((button, at) => button.setAttribute("aria-pressed", String(result.captions[at] === one)));
  showWords();
}

function thumbnail(one) {
  const image = byId("photo");
  const height = Math.round((150 * image.naturalHeight) / image.naturalWidth);
  const canvas = make("canvas", { width: 150, height: Math.min(height, 225), "aria-hidden": "true" });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  paint(canvas, one, result);
  return canvas;
}

function showWords() {
  const words = caption ? caption.words : [];
  const placed = words.some((one) => looksAt(one, result));
  byId("words").replaceChildren(...words.map((one) => make("button", {
    type: "button", "aria-pressed": "false", on: { click: () => look(one), focus: () => look(one), mouseenter: () => look(one) },
  }, placed ? thumbnail(one) : null, foreign(one.text), make("small", {}, percent(one.probability)))));
  byId("words-hint").hidden = !words.length;
  byId("words-hint").textContent = placed ? HINT : NOWHERE;
  look(null);
}

function look(one) {
  word = one;
  [...byId("words").children].forEach((button, at) => button.setAttribute("aria-pressed", String(caption.words[at] === one)));
  const image = byId("photo"), overlay = byId("overlay");
  overlay.width = image.naturalWidth || 1;
  overlay.height = image.naturalHeight || 1;
  if (result) paint(overlay, one, result);
  const share = one ? wholeWeight(one, result) : null;
  const whole = share === null ? "" : `; the whole photo gets ${percent(share)}`;
  byId("looks").replaceChildren(...(one && looksAt(one, result) ? ["· attention for “", foreign(one.text), "”", whole] : []));
}

// The mouse has left the words: the chosen one, if there is one.
const lookAgain = () => look(caption?.words[[...byId("words").children].indexOf(document.activeElement)] ?? null);

// Arrows go through the words, and on from the last to the first.
function step(event) {
  const buttons = [...byId("words").children];
  const at = buttons.indexOf(document.activeElement);
  const go = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === "Escape") return look(null);
  if (at < 0 || !go) return;
  event.preventDefault();
  buttons[(at + go + buttons.length) % buttons.length].focus();
}

// The end of a long path, which tells captioners apart.
function tail(name) {
  const parts = name.split("/");
  return name.length > 40 && parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : name;
}

function openPhotos(start) {
  models = start.models;
  maxBytes = start.max_bytes;
  byId("model").replaceChildren(...models.map((model, at) => make("option", { value: at, title: model.name }, isolated(tail(model.name)))));
  const newModel = () => { byId("beam_size").placeholder = models[byId("model").selectedIndex].beam; };
  newModel();
  byId("model").addEventListener("change", () => { newModel(); if (photo) describe(); });
  byId("settings").addEventListener("submit", (event) => { event.preventDefault(); describe(); });
  byId("diverse").addEventListener("change", () => { byId("seed-label").hidden = !byId("diverse").checked; });
  byId("file").addEventListener("change", () => { if (byId("file").files.length) take(byId("file").files[0]); byId("file").value = ""; });
  byId("words").addEventListener("keydown", step);
  byId("words").addEventListener("mouseleave", lookAgain);
  byId("decoding").open = window.innerWidth > 800; // on a phone the captions come sooner
  receive();
}

// A photo that is dropped anywhere on the page, or pasted.
function receive() {
  document.addEventListener("dragover", (event) => { event.preventDefault(); byId("drop").classList.add("over"); });
  document.addEventListener("dragleave", () => byId("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    if (event.dataTransfer.files.length) { showPart("photo"); take(event.dataTransfer.files[0]); }
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) { showPart("photo"); take(event.clipboardData.files[0]); }
  });
}
