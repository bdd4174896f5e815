"use strict";

// An element. Children that are texts become text nodes: no text is ever parsed as markup.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// Text of a data set: set apart, so that its direction marks do not reorder what stands around it.
const foreign = (text, kind = "") => make("bdi", { dir: "auto", class: kind || null }, String(text));

// A caption with words or sentences struck out, and those that took their place: text that stays, an old one, a new one, and so on.
function mended(pieces) {
  const part = (piece, place) => [piece, make("del", {}, piece), [" ", make("ins", { class: "after" }, piece)]][place % 3];
  return make("bdi", { dir: "auto", class: "before" }, pieces.flatMap(part));
}

// The same for places that hold plain text alone, such as hints; as in curation/review/html_page.py.
const MARKS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const isolated = (text) => `\u2068${String(text).replace(MARKS, "\ufffd")}\u2069`;

const byId = (id) => document.getElementById(id);
const number = (value) => Number(value).toLocaleString("en");
const counted = (count, thing) => `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
const percent = (value, digits = 0) => (value === null || Number.isNaN(value) ? "–" : (100 * value).toFixed(digits) + " %");
const ACTION_NAMES = { remove: "removed", replace_caption: "caption replaced", replace_image: "image replaced", down_weight: "weighted down", mask_words: "words masked", set_bucket: "put into a bucket" };
const actionName = (action) => ACTION_NAMES[action] || String(action).replaceAll("_", " ");

function options(select, pairs) {
  select.replaceChildren(...pairs.map(([value, name]) => make("option", { value }, name)));
}

function table(head, rows) {
  const cells = (tag, row) => make("tr", {}, row.map((cell) => make(tag, {}, cell)));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, cells("th", head)), make("tbody", {}, rows.map((row) => cells("td", row)))));
}

// The parts that are shown, in the bar at the top.
function showLinks() {
  const shown = [...document.querySelectorAll("main section[id]:not([hidden]) > h2")];
  byId("links").append(...shown.map((head) => make("a", { href: `#${head.parentElement.id}` }, head.textContent)));
}
