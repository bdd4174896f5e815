const PAGE_SIZE = 25;
const state = { found: [], page: 0, focus: 0 };
let edits = null;
let decisions = null;
let facts = null;

function showHead() {
  byId("heading").append("Curation of ", foreign(facts.roster));
  byId("about").append("Policy ", foreign(facts.policy), ` · seed ${facts.seed} · fingerprint ${facts.fingerprint}`);
  const tile = (value, name, kind) => make("div", { class: `card tile ${kind}` }, make("b", {}, value), make("span", { class: "soft small" }, name));
  const hits = facts.truth ? facts.truth.epochs.reduce((sum, one) => sum + one.hits, 0) : 0;
  const vanished = facts.vanished;
  const named = (count, thing) => thing + (count === 1 ? "" : "s");
  byId("tiles").append(
    tile(number(facts.num_samples), `${named(facts.num_samples, "caption")} at the start`, ""),
    tile(number(facts.num_left), `${named(facts.num_left, "caption")} left`, "cool"),
    tile(number(facts.num_edits), named(facts.num_edits, "edit"), "warm"),
    tile(percent(facts.num_edited / facts.num_samples, 1), "of all captions edited", "warm"),
    tile(number(vanished.images.count), `${named(vanished.images.count, "image")} vanished`, vanished.images.count ? "warm" : "good"),
    tile(number(vanished.words.count), `${named(vanished.words.count, "word")} vanished`, vanished.words.count ? "warm" : "good"));
  if (facts.truth && facts.num_edits) byId("tiles").append(tile(percent(hits / facts.num_edits), "of the edits hit a planted fault", "good"));
}

function showEpochs() {
  const actions = [...new Set(facts.actions.map((one) => one.action))];
  const names = facts.epochs.length ? facts.epochs.map((one) => one.epoch) : [...new Set(facts.actions.map((one) => one.epoch))];
  const count = (epoch, action) => facts.actions.filter((one) => one.epoch === epoch && one.action === action).reduce((sum, one) => sum + one.count, 0);
  const series = actions.map((action) => ({ name: actionName(action), color: COLORS[action] || "#9aa3ad", values: names.map((epoch) => count(epoch, action)) }));
  const parts = byId("epoch-parts");
  if (series.length) parts.append(make("div", { class: "card" }, stackedBars({ names, series, label: "edits", xLabel: "epoch" })));
  else parts.append(make("p", { class: "card" }, "No caption was changed: the run only recorded losses."));
  const policies = new Map();
  for (const one of facts.actions) {
    const key = JSON.stringify([one.policy, one.action]);
    policies.set(key, (policies.get(key) || 0) + one.count);
  }
  const box = make("div", { class: "card" });
  if (facts.epochs.length) {
    box.append(table(["epoch", "live", "found bad", "left as is", "live after", "mean loss"], facts.epochs.map((one) => [
      String(one.epoch), number(one.num_live_before), number(one.num_selected), number(one.num_kept), number(one.num_live_after), one.loss_mean === null ? "–" : one.loss_mean.toFixed(3)])));
  }
  if (policies.size) {
    box.append(table(["policy", "action", "edits"], [...policies].map(([key, total]) => {
      const [policy, action] = JSON.parse(key);
      return [foreign(policy), actionName(action), number(total)];
    })));
  }
  const notes = facts.epochs.flatMap((one) => Object.entries(one.notes || {}).map(([note, count]) => [String(one.epoch), foreign(note), number(count)]));
  if (notes.length) box.append(table(["epoch", "noted", "times"], notes));
  const served = facts.epochs.flatMap((one) => Object.entries(one.served || {}).map(([name, of]) => [String(one.epoch), foreign(name), number(of.answers),
    Object.entries(of.without).map(([reason, count]) => `${reason} (${count})`).join("; "), percent(of["share without"])]));
  if (served.length) box.append(table(["epoch", "served model", "answers", "without", "share without"], served));
  if (box.childNodes.length) parts.append(box);
}

function showLosses() {
  const parts = byId("loss-parts");
  if (!facts.curves.length) return parts.append(make("p", { class: "soft" }, "The run recorded no losses."));
  const series = facts.curves.map(groupLine);
  parts.append(make("div", { class: "two" },
    make("div", { class: "card" }, curves({ series, label: "mean loss (nats a token)", xLabel: "epoch" })),
    make("div", { class: "card soft" }, make("p", {}, "Mean loss of each group of captions at the end of an epoch. An edited caption counts until its first edit."), facts.truth ? make("p", {}, "The wider the gap between planted faults and sound captions, the better the loss can tell them apart.") : null)));
  const bars = facts.histograms;
  if (!bars) return undefined;
  const high = Math.max(1, ...bars.epochs.flatMap((one) => one.seen));
  const layers = [{ name: "captions", ...LAYERS.seen }, { name: "edited", ...LAYERS.edited }];
  if (facts.truth) layers.push({ name: "planted faults", ...LAYERS.faulty });
  parts.append(legend(layers), make("div", { class: "small-multiples" }, bars.epochs.map((one) => make("div", { class: "card" },
    make("h3", {}, `Epoch ${one.epoch}`),
    histogram({
      edges: bars.edges, label: "captions", xLabel: "loss, nats a token", high,
      layers: lossLayers(one),
    })))));
  return undefined;
}

function showTruth() {
  const truth = facts.truth;
  if (!truth) return;
  byId("truth").hidden = false;
  byId("truth-link").hidden = false;
  const parts = byId("truth-parts");
  const names = truth.epochs.map((one) => one.epoch);
  if (names.length) {
    const share = (value) => percent(value);
    parts.append(make("div", { class: "card" }, curves({
      low: 0, high: 1, format: share, label: "edits that hit a planted fault", xLabel: "epoch",
      series: [
        { name: "precision", ...STYLES[2], points: truth.epochs.map((one) => [one.epoch, one.hits / one.edits]) },
        { name: "by chance (share of faults)", ...PLAIN, points: names.map((epoch) => [epoch, truth.rate]) },
      ],
    })));
  }
  const scores = new Map(facts.epochs.map((one) => [one.epoch, one.detection || {}]));
  const three = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
  parts.append(make("div", { class: "card" },
    faultsTable(truth, foreign),
    table(["epoch", "edits", "faulty", "precision", "AUC of loss"], truth.epochs.map((one) => [
      String(one.epoch), number(one.edits), number(one.hits), three(one.hits / one.edits), three((scores.get(one.epoch) || {}).auc)]))));
}

function showWorst() {
  const epochs = [...new Set(facts.worst.map((edit) => edit.epoch))];
  const show = (epoch) => {
    byId("worst-cards").replaceChildren(...facts.worst.filter((edit) => edit.epoch === epoch).map(card));
    for (const tab of byId("worst-tabs").children) tab.setAttribute("aria-pressed", String(tab.dataset.epoch === String(epoch)));
  };
  byId("worst-tabs").append(...epochs.map((epoch) => make("button", { "data-epoch": epoch, on: { click: () => show(epoch) } }, epoch < 0 ? "before training" : `epoch ${epoch}`)));
  if (epochs.length) show(epochs[0]);
  byId("worst").hidden = !epochs.length;
  byId("repeated").hidden = !facts.repeated.length;
  byId("repeated-cards").append(...facts.repeated.map((chain) => {
    const [first, last] = [chain[0], chain[chain.length - 1]];
    return make("article", { class: "card shot" }, photos(last), make("div", { class: "text" },
      make("div", { class: "badges" }, chain.map((edit) => make("span", { class: `badge ${edit.action}` }, `${actionName(edit.action)} · ${edit.epoch}`))),
      make("div", {}, foreign(first.before, "before gone")),
      chain.map((edit, at) => (edit.after === null ? null : make("div", {}, foreign(edit.after, at === chain.length - 1 ? "after" : "before gone")))),
      make("div", { class: "small soft meta" }, `${chain.length} edits · `, foreign(first.id))));
  }));
}

function showVanished() {
  const { images, words } = facts.vanished;
  const more = (part) => (part.count > part.named.length ? make("p", { class: "soft small" }, `and ${number(part.count - part.named.length)} more`) : null);
  const pictured = images.named.filter((one) => one.photo >= 0);
  const others = images.named.filter((one) => !(one.photo >= 0));
  byId("vanished-parts").append(
    make("div", { class: "card" }, make("h3", {}, `Words: ${number(words.count)} of ${number(words.of)}`),
      make("p", { class: "soft small" }, words.count ? "In no caption any more, with how often they stood there at the start." : "Every word of the original captions is still in a caption."),
      make("div", { class: "words" }, words.named.map((one) => make("span", {}, foreign(one.word), " ", make("b", {}, String(one.count))))), more(words)),
    make("div", { class: "card" }, make("h3", {}, `Images: ${number(images.count)} of ${number(images.of)}`),
      make("p", { class: "soft small" }, images.count ? "Shown with no caption any more, each with its first one." : "Every image still has a caption."),
      make("div", { class: "lost" }, pictured.map((one) => make("figure", {}, photo(one.photo), make("figcaption", {}, foreign(one.caption))))),
      make("div", { class: "words small" }, others.map((one) => make("span", { title: isolated(one.caption) }, foreign(one.image)))), more(images)));
}

function decide(edit, decision) {
  decisions.set(edit.id, decisions.of(edit.id) === decision ? null : decision);
  showRows();
}

function row(place, at) {
  const edit = edits.at(place);
  const decided = decisions.of(edit.id);
  const button = (name, kind, decision) => make("button", { class: kind, "aria-pressed": String(decided === decision), on: { click: () => { state.focus = at; decide(edit, decision); } } }, name);
  return make("article", { class: `card row ${decided || ""}`, tabindex: "-1", "data-id": edit.id },
    photos(edit),
    make("div", {}, badges(edit), captions(edit), meta(edit)),
    make("div", { class: "decide" }, button("Accept", "accept", "accepted"), button("Undo", "undo", "undone")));
}

function shownPlaces() {
  return state.found.slice(state.page * PAGE_SIZE, (state.page + 1) * PAGE_SIZE);
}

function showRows() {
  const pages = Math.max(1, Math.ceil(state.found.length / PAGE_SIZE));
  state.page = Math.min(Math.max(0, state.page), pages - 1);
  byId("rows").replaceChildren(...shownPlaces().map(row));
  const rows = byId("rows").children;
  state.focus = Math.min(Math.max(0, state.focus), rows.length - 1);
  if (state.byKey && rows[state.focus]) rows[state.focus].focus({ preventScroll: false });
  byId("page").value = state.page + 1;
  byId("page").max = pages;
  byId("pages").textContent = `of ${number(pages)}`;
  byId("previous").disabled = state.page === 0;
  byId("next").disabled = state.page === pages - 1;
  const hidden = facts.num_edits - facts.num_listed;
  byId("found").textContent = `${number(state.found.length)} of ${counted(facts.num_edits, "edit")}` +
    (edits.length < facts.num_listed ? `, ${number(edits.length)} read so far` : "") +
    (hidden > 0 ? `. The list holds the first ${number(facts.num_listed)}; curation.jsonl also has the other ${number(hidden)}, which would make this page too large` : "") +
    (pictures.length ? "" : ". No photo is shown: none could be opened when the page was made");
}

function search(page = 0) {
  const wanted = {
    text: byId("search").value, epoch: byId("by-epoch-filter").value, action: byId("by-action-filter").value,
    fault: byId("by-fault-filter").value, decision: byId("by-decision-filter").value,
  };
  state.found = edits.length ? edits.find(wanted, decisions) : [];
  state.page = page;
  showRows();
}

function countDecisions() {
  byId("decided").textContent = `${number(decisions.count("accepted"))} accepted, ${number(decisions.count("undone"))} undone`;
}

function listen() {
  const epochs = [...new Set(facts.actions.map((one) => one.epoch))];
  const actions = [...new Set(facts.actions.map((one) => one.action))];
  options(byId("by-epoch-filter"), [["", "All epochs"], ...epochs.map((epoch) => [epoch, `Epoch ${epoch}`])]);
  options(byId("by-action-filter"), [["", "All actions"], ...actions.map((action) => [action, actionName(action)])]);
  options(byId("by-decision-filter"), [["", "Decided or not"], ["open", "Not decided"], ["accepted", "Accepted"], ["undone", "Undone"]]);
  options(byId("by-fault-filter"), [["", "Faulty or not"], ["some", "Planted fault"], ["none", "Sound"]]);
  byId("by-fault-filter").hidden = !facts.truth;
  let timer = 0;
  byId("search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => search(), 200); });
  for (const name of ["epoch", "action", "fault", "decision"]) byId(`by-${name}-filter`).addEventListener("change", () => search());
  const turn = (page) => { state.page = page; state.focus = 0; state.byKey = false; showRows(); };
  byId("previous").addEventListener("click", () => turn(state.page - 1));
  byId("next").addEventListener("click", () => turn(state.page + 1));
  byId("page").addEventListener("change", () => turn(Number(byId("page").value) - 1 || 0));
  byId("accept-page").addEventListener("click", () => {
    for (const place of shownPlaces()) if (!decisions.of(edits.columns.id[place])) decisions.set(edits.columns.id[place], "accepted");
    showRows();
  });
  byId("save").addEventListener("click", () => decisions.download());
  byId("load").addEventListener("click", () => byId("load-file").click());
  byId("load-file").addEventListener("change", async (event) => {
    const problem = decisions.load(await event.target.files[0].text());
    event.target.value = "";
    showRows();
    if (problem) byId("decided").replaceChildren("Not loaded: ", foreign(problem));
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("beforeunload", (event) => { if (!decisions.saved) event.preventDefault(); });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const place = shownPlaces()[state.focus];
  const steps = { j: 1, k: -1 };
  if (event.key in steps) {
    state.focus += state.byKey ? steps[event.key] : 0;
    state.byKey = true;
    showRows();
  } else if (place !== undefined && (event.key === "a" || event.key === "u")) {
    decide(edits.at(place), event.key === "a" ? "accepted" : "undone");
  }
}

async function start() {
  facts = await unpack(blocks("facts")[0]);
  pictures = blocks("picture").map((node) => node.textContent);
  edits = new EditTable();
  decisions = new Decisions(facts);
  decisions.onChange = countDecisions;
  for (const show of [showHead, showEpochs, showLosses, showTruth, showWorst, showVanished, listen, countDecisions]) show();
  search();
  for (const node of blocks("edits")) {
    edits.add(await unpack(node));
    // the first page appears at once, the whole list when it has been read
    if (edits.length <= 10000) search(state.page);
  }
  search(state.page);
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  byId("heading").textContent = "This page could not be read";
  byId("about").textContent = `${error}. Use a browser from 2023 or later.`;
});
