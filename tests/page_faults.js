// What a reader would stumble over on the page that is shown, a line each; nothing: a sound page.
// Texts of the data lie in `bdi` and are not held to our words.
const faults = [];
const width = document.documentElement.clientWidth;
const say = (kind, node, more = "") => faults.push(`${kind}: <${node.tagName.toLowerCase()}${node.id ? ` #${node.id}` : ""} class="${node.getAttribute("class") || ""}"> ${node.textContent.trim().slice(0, 60)} ${more}`);
const isShown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !node.closest("script, style, option, datalist, noscript");
const scrolls = (node) => { for (let one = node; one !== null; one = one.parentElement) if (/auto|scroll/.test(getComputedStyle(one).overflowX)) return true; return false; };

// Width: the page does not scroll sideways, and nothing but what lies in a box that scrolls reaches out of it.
if (document.documentElement.scrollWidth > width) faults.push(`the page is ${document.documentElement.scrollWidth} px wide, the window ${width}`);
for (const node of document.querySelectorAll("body *")) {
  if (!isShown(node) || scrolls(node)) continue;
  const box = node.getBoundingClientRect();
  if (box.width > 1 && (box.right > width + 1 || box.left < -1)) say("wider than the window", node, `${box.left} to ${box.right}`);
}

// Colours: [red, green, blue, alpha], laid over each other.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function colour(text) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
function ground(node) {
  const layers = [];
  for (let one = node; one !== null; one = one.parentElement) layers.push(colour(getComputedStyle(one).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), colour(getComputedStyle(document.documentElement).colorScheme && matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff"));
}
function light([red, green, blue]) {
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}
// The contrast of WCAG 2.2, 1.4.3.
function contrast(one, other) {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode;
  if (text.data.trim() && isShown(text.parentElement)) texts.push(text);
}
const boxOf = (text) => { const range = document.createRange(); range.selectNodeContents(text); return range.getBoundingClientRect(); };
for (const text of texts) {
  const node = text.parentElement;
  const style = getComputedStyle(node);
  const box = boxOf(text);
  if (box.width === 0) continue;
  if (!node.closest(":disabled")) {
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    let faded = 1;
    for (let one = node; one !== null; one = one.parentElement) faded *= Number(getComputedStyle(one).opacity);
    const behind = ground(node);
    const ink = colour(node.closest("svg") ? style.fill : style.color);
    const found = contrast(over([...ink.slice(0, 3), ink[3] * faded], behind), behind);
    if (found < needed - 0.01) say(`contrast ${found.toFixed(2)} of ${needed}`, node);
  }
  // a word lies on one line
  for (const word of text.data.matchAll(/[\p{L}\p{N}]{2,24}/gu)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const lines = new Set([...range.getClientRects()].filter((one) => one.width > 0).map((one) => Math.round(one.top / 4)));
    const [from, to] = [text.data.slice(0, word.index), text.data.slice(word.index)];
    const whole = /\S*$/.exec(from)[0] + /^\S*/.exec(to)[0]; // a path or an address may break
    if (lines.size > 1 && whole.length < 25) say(`broken inside: ${word[0]}`, node);
  }
  if (node.closest("bdi, code, pre, .data")) continue;
  const bad = /\b(None|undefined|NaN|null|Infinity)\b|[-−]0(\.0+)?(?![.\d])|\b[a-z]+_[a-z_]+\b|\[object/.exec(text.data);
  if (bad && bad[0] !== "run_name") say(`no word for a reader: ${bad[0]}`, node);
}
// one and its plural may lie in two elements
const sentences = [...document.querySelectorAll("p, li, td, h1, h2, h3, figcaption, span, .tile")].filter(isShown).map((node) => [node, node.classList.contains("tile") ? [...node.children].map((one) => one.textContent).join(" ") : node.textContent]);
for (const [node, text] of sentences) {
  const bad = /(?<![\d.,:])\b1 (?:\w+ )?(images|photos|captions|epochs|edits|words|runs|items|seeds|samples|updates)\b/.exec(text);
  if (bad) say(`not one: ${bad[0]}`, node);
}

// Buttons lie beside texts, not over them.
const boxes = texts.map((text) => [text.parentElement, boxOf(text)]);
for (const button of document.querySelectorAll("button")) {
  if (!isShown(button)) continue;
  const box = button.getBoundingClientRect();
  for (const [node, other] of boxes) {
    if (button.contains(node) || other.width === 0) continue;
    if (other.left < box.right - 1 && other.right > box.left + 1 && other.top < box.bottom - 1 && other.bottom > box.top + 1) say("a button lies over", node, `: ${button.textContent}`);
  }
}

// From the top one gets everywhere: each part with a heading has a link that is shown.
const links = [...document.querySelectorAll("nav a, nav button")].filter(isShown);
if (links.length < 2) faults.push("the page has no navigation");
for (const link of links) {
  const target = link.tagName === "A" && link.getAttribute("href").startsWith("#") ? document.getElementById(link.getAttribute("href").slice(1)) : null;
  if (link.tagName === "A" && (target === null || !isShown(target))) say("leads nowhere", link);
}
return [...new Set(faults)];
