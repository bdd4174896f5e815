// Suspected captions, one at a time. A decision is sent at once; the list goes on to the next one without.

const VERDICTS = { keep: "Kept", remove: "Removed", correct: "Corrected" };
let suspects = [];
let shown = []; // numbers of the suspects that the filter leaves, in order
let at = 0;
const photos = new Map(); // elements by number: of the suspect shown, of the next ones, of the one before
const AHEAD = 3;
const earlier = []; // decisions to undo: { number, verdict, correction } as they were before
const decisions = outbox("api/decide", () => "all decisions are saved");

const current = () => suspects[shown[at]];
const isOpen = (one) => one.verdict === null;

function filter() {
  const which = byId("which").value;
  const fits = { "": () => true, open: isOpen, decided: (one) => !isOpen(one) }[which] ?? ((one) => one.issues.includes(which.slice(1)));
  shown = suspects.map((_, number) => number).filter((number) => fits(suspects[number]));
  at = Math.max(0, shown.findIndex((number) => isOpen(suspects[number])));
  showSuspect();
}

function showCounts() {
  const counts = Object.keys(VERDICTS).map((verdict) => [verdict, suspects.filter((one) => one.verdict === verdict).length]);
  const decided = counts.reduce((sum, [, count]) => sum + count, 0);
  byId("bar").style.width = `${(100 * decided) / suspects.length}%`;
  byId("counts").textContent = `${number(decided)} of ${number(suspects.length)} decided: ${counts.map(([verdict, count]) => `${number(count)} ${VERDICTS[verdict].toLowerCase()}`).join(", ")}.`;
  byId("to-review").textContent = decided === suspects.length ? "Review captions: all decided" : `Review captions: ${number(suspects.length - decided)} left`;
}

function showSuspect() {
  const one = current();
  byId("nothing").hidden = Boolean(one);
  byId("suspect").hidden = !one;
  byId("place").textContent = one ? `${number(at + 1)} of ${number(shown.length)}` : "";
  byId("previous").disabled = at === 0;
  byId("next").disabled = at + 1 >= shown.length;
  if (!one) return;
  showSuspectPhoto();
  byId("suspect-file").replaceChildren(foreign(one.photo));
  byId("open-photo").href = `suspect/${shown[at]}`;
  byId("others").hidden = one.others.length === 0;
  byId("other-captions").replaceChildren(...one.others.map((text) => make("li", {}, foreign(text))));
  byId("suspect-caption").replaceChildren(foreign(one.caption));
  byId("issues").replaceChildren(...one.issues.map((issue) => make("span", { class: "badge" }, foreign(issue.replaceAll("_", " ")))),
    one.suspicion === null ? "" : make("span", { class: "soft small" }, `suspicion ${percent(one.suspicion)}: the highest probability of a fault among all checks`));
  byId("reason").replaceChildren(foreign(one.reason));
  byId("proposal").hidden = byId("accept").hidden = one.proposal === null;
  byId("proposal").replaceChildren("New: ", foreign(one.proposal ?? ""));
  closeCorrection();
  showVerdict(one);
}

function photoOf(number) {
  if (!photos.has(number)) {
    const image = make("img", { alt: "the photo of this caption", src: `suspect/${number}`, on: { error: () => { image.hidden = true; showSuspectPhoto(); } } });
    photos.set(number, image);
  }
  return photos.get(number);
}

// The photo of the suspect; when it is there, those of the next ones are loaded, and others let go.
function showSuspectPhoto() {
  const near = [shown[at], ...shown.slice(at + 1, at + 1 + AHEAD), shown[at - 1]];
  for (const number of [...photos.keys()]) if (!near.includes(number)) photos.delete(number);
  const image = photoOf(shown[at]);
  if (byId("suspect-photo") !== image) {
    byId("suspect-photo").replaceWith(image);
    image.id = "suspect-photo";
  }
  byId("no-photo").hidden = !image.hidden;
  const loadNext = () => { if (image === byId("suspect-photo")) near.slice(1, 1 + AHEAD).filter((number) => number !== undefined).forEach(photoOf); };
  if (image.complete) loadNext();
  else image.addEventListener("load", loadNext, { once: true });
}

function showVerdict(one) {
  byId("judged").className = `card ${one.verdict ?? ""}`;
  byId("verdict").replaceChildren(...(isOpen(one) ? [] : [VERDICTS[one.verdict], one.correction ? ": " : "", foreign(one.correction)]));
  byId("undo").disabled = !earlier.length && isOpen(one);
  for (const verdict of Object.keys(VERDICTS)) byId(verdict).setAttribute("aria-pressed", String(one.verdict === verdict));
  byId("accept").setAttribute("aria-pressed", String(one.verdict === "correct" && one.correction === one.proposal));
  showCounts();
}

function write(number, verdict, correction) {
  Object.assign(suspects[number], { verdict, correction });
  decisions.put(number, { number, verdict, correction });
}

function decide(verdict, correction = "") {
  const number = shown[at];
  earlier.push({ number, verdict: suspects[number].verdict, correction: suspects[number].correction });
  write(number, verdict, correction);
  const next = shown.findIndex((other, place) => place > at && isOpen(suspects[other]));
  if (next > 0) at = next;
  showSuspect();
}

// The last decision; after a new start, the one on this caption.
function undo() {
  const last = earlier.pop() ?? { number: shown[at], verdict: null, correction: "" };
  write(last.number, last.verdict, last.correction);
  if (!shown.includes(last.number)) { byId("which").value = ""; filter(); }
  at = shown.indexOf(last.number);
  showSuspect();
}

function move(step) {
  at = Math.min(shown.length - 1, Math.max(0, at + step));
  showSuspect();
}

function openCorrection() {
  const one = current();
  byId("correction").hidden = false;
  byId("text").value = one.correction || one.proposal || one.caption;
  byId("text").focus();
  byId("text").select();
}

function closeCorrection() {
  if (byId("correction").contains(document.activeElement)) document.activeElement.blur();
  byId("correction").hidden = true;
}

function saveCorrection() {
  const text = byId("text").value.trim();
  if (text) decide("correct", text);
  else say("Write a caption first.", true);
}

async function suggest() {
  const number = shown[at];
  say("asking the captioner…");
  try {
    const answer = await ask("api/suggest", { number, model: byId("model").selectedIndex });
    if (number !== shown[at] || byId("correction").hidden) return;
    byId("text").value = answer.caption;
    byId("text").focus();
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

const accept = () => { const one = current(); if (one.proposal === null) decide("remove"); else decide("correct", one.proposal); };
const ACTS = {
  a: accept, r: () => decide("remove"), k: () => decide("keep"), c: openCorrection, u: undo,
  ArrowRight: () => move(1), ArrowLeft: () => move(-1), j: () => move(1), h: () => move(-1),
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("review-part").hidden) return;
  if (event.target.matches("textarea, select, input")) return;
  const act = ACTS[event.key];
  if (!act || (!current() && event.key !== "u")) return;
  event.preventDefault();
  act();
}

function pressInText(event) {
  if (event.key === "Escape") closeCorrection();
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  saveCorrection();
}

function openReview(review) {
  suspects = review.suspects;
  const issues = [...new Set(suspects.flatMap((one) => one.issues))];
  options(byId("which"), [["", "all"], ["open", "not decided"], ["decided", "decided"], ...issues.map((issue) => [`:${issue}`, isolated(issue.replaceAll("_", " "))])]);
  byId("decisions").textContent = review.file;
  byId("command").textContent = review.command;
  byId("which").addEventListener("change", () => { filter(); byId("which").blur(); });
  for (const [name, act] of Object.entries({ accept, remove: ACTS.r, keep: ACTS.k, correct: openCorrection, undo, previous: ACTS.h, next: ACTS.j, suggest })) byId(name).addEventListener("click", act);
  byId("correction").addEventListener("submit", (event) => { event.preventDefault(); saveCorrection(); });
  byId("text").addEventListener("keydown", pressInText);
  document.addEventListener("keydown", press);
  window.addEventListener("beforeunload", (event) => { if (decisions.isWaiting()) event.preventDefault(); });
  filter();
}
