// Attention over a photo: what a word looks at is tinted, the rest is darkened; boxes are drawn by their weight.

const DARKEST = 0.8, BRIGHTEST = 0.3;
const TINT = [240, 160, 48];

// The weights of a grid as a small picture: from black over clear to tinted.
function veil(weights, [rows, columns]) {
  const canvas = make("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const least = Math.min(...weights), most = Math.max(...weights);
  weights.forEach((weight, at) => {
    const share = most > least ? (weight - least) / (most - least) : 1;
    const bright = share > 0.5;
    pixels.data.set(bright ? TINT : [0, 0, 0], 4 * at);
    pixels.data[4 * at + 3] = 255 * (bright ? BRIGHTEST * (2 * share - 1) : DARKEST * (1 - 2 * share));
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function paintGrid(context, weights, grid) {
  const { width, height } = context.canvas;
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(veil(weights, grid), 0, 0, width, height);
}

// The first weight is that of the whole photo. Without weights boxes are outlined alike.
function paintBoxes(context, weights, boxes) {
  const { width, height } = context.canvas;
  const most = weights ? Math.max(...weights.slice(1), 1e-9) : 1;
  const unit = Math.max(width, height) / 400;
  boxes.forEach(({ box: [left, top, right, bottom], label }, at) => {
    if (weights && at + 1 >= weights.length) return; // the captioner takes no more
    const share = weights ? weights[at + 1] / most : 0.5;
    const place = [left * width, top * height, (right - left) * width, (bottom - top) * height];
    context.globalAlpha = weights ? 0.45 * share : 0;
    context.fillStyle = `rgb(${TINT})`;
    context.fillRect(...place);
    context.globalAlpha = 0.35 + 0.65 * share;
    context.lineWidth = unit * (1 + 2 * share);
    context.strokeStyle = `rgb(${TINT})`;
    context.strokeRect(...place);
    if (label && width > 200) paintLabel(context, label, place[0], place[1], unit);
  });
  context.globalAlpha = 1;
}

function paintLabel(context, label, left, top, unit) {
  const size = Math.round(6 * unit + 6);
  context.font = `${size}px system-ui, sans-serif`;
  const width = context.measureText(label).width + size * 0.6;
  context.fillStyle = `rgb(${TINT})`;
  context.fillRect(left, top, width, size * 1.3);
  context.fillStyle = "#1c2430";
  context.fillText(label, left + size * 0.3, top + size);
}

const cells = (result) => (result.grid ? result.grid[0] * result.grid[1] : 0);

// "grid", "boxes", or "" where the weights of a word have no place in the photo.
function looksAt(word, result) {
  if (!word.weights.length) return "";
  if (result.boxes.length) return "boxes";
  return cells(result) && [0, 1].includes(word.weights.length - cells(result)) ? "grid" : "";
}

// The weight of the whole photo, which stands before those of its parts, or null.
const wholeWeight = (word, result) => ({ boxes: word.weights[0], grid: word.weights.length > cells(result) ? word.weights[0] : null })[looksAt(word, result)] ?? null;

// Where a word looks, over whatever the canvas shows; null for the boxes alone.
function paint(canvas, word, result) {
  const context = canvas.getContext("2d");
  if (word && looksAt(word, result) === "grid") paintGrid(context, word.weights.slice(-cells(result)), result.grid);
  if (result.boxes.length) paintBoxes(context, word && word.weights.length ? word.weights : null, result.boxes);
}
