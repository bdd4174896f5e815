// Requests to the page's own server. Addresses are relative: the page's own holds the token.

async function post(path, body, type) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": type }, body });
  const text = await answer.text();
  if (!answer.ok) {
    const error = new Error(text);
    error.refused = answer.status < 500;
    throw error;
  }
  return JSON.parse(text);
}

const ask = (path, record) => post(path, JSON.stringify(record), "application/json");
const upload = (path, file) => post(path, file, "application/octet-stream");
