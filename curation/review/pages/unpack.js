// The packed data of a page.

async function unpack(node) {
  const text = atob(node.textContent);
  node.remove();
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const blocks = (kind) => [...document.querySelectorAll(`script[data-kind="${kind}"]`)];
