// Photos, captions and edits as cards. A page fills `pictures`.

let pictures = [];

function photo(at, kind = "", alt = "") {
  if (at < 0) return make("span", { class: "none" }, "not shown");
  return make("img", { src: `data:image/jpeg;base64,${pictures[at]}`, alt, class: kind || null });
}

function photos(edit) {
  if (edit.action !== "replace_image") return make("div", { class: "photos" }, photo(edit.photo, edit.action === "remove" ? "gone" : ""));
  return make("div", { class: "photos pair" }, photo(edit.photo, "gone"), photo(edit.photo_after), make("span", { class: "then" }, "→"));
}

function badges(edit) {
  return make("div", { class: "badges" },
    make("span", { class: `badge ${edit.action}` }, actionName(edit.action)),
    edit.fault ? make("span", { class: "badge fault", title: "planted fault" }, "planted: ", foreign(edit.fault)) : null);
}

// A caption in pieces, every second of which is masked.
function masked(pieces) {
  return make("bdi", { dir: "auto", class: "before" },
    pieces.map((piece, place) => (place % 2 ? make("del", { title: "left out" }, piece) : piece)));
}

function captions(edit) {
  if (edit.changed) return make("div", {}, mended(edit.changed));
  if (edit.pieces) return make("div", {}, masked(edit.pieces));
  const gone = edit.action === "remove" || edit.after !== null; // other actions keep the caption
  return [
    make("div", {}, foreign(edit.before, gone ? "before gone" : "before")),
    edit.after === null ? null : make("div", {}, foreign(edit.after, "after")),
  ];
}

function meta(edit) {
  return make("div", { class: "small soft meta" }, `epoch ${edit.epoch} · `, foreign(edit.reason || edit.policy), " · ", foreign(edit.id), edit.note ? [" · ", foreign(edit.note)] : null);
}

const card = (edit) => make("article", { class: "card shot" }, photos(edit), make("div", { class: "text" }, badges(edit), captions(edit), meta(edit)));

// What became of planted faults; columns of mends where words were replaced.
function faultsTable(truth, text) {
  const mended = truth.words_replaced > 0;
  const row = (one) => [
    text(one.kind), number(one.planted), number(one.caught), percent(one.caught / one.planted),
    ...(mended ? [number(one.mended), number(one.mended_wrongly)] : []),
  ];
  const sound = mended ? [["none planted", "", number(truth.replaced_needlessly), "", "", ""]] : [];
  const heads = ["fault", "planted", "edited", "share", ...(mended ? ["mended rightly", "mended wrongly"] : [])];
  return table(heads, [...truth.kinds.map(row), ...sound]);
}
