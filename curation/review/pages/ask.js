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

// The line in the page's head.
function say(text, bad = false) {
  byId("status").textContent = text;
  byId("status").className = bad ? "small bad" : "small";
}

// Records that are sent one after the other. A later record of a key replaces one that was not sent yet; what
// could not be sent is tried again, until the server has it.
function outbox(path, saved) {
  const unsent = new Map();
  let sending = null;

  async function sendAll() {
    while (unsent.size) {
      const [key, record] = unsent.entries().next().value;
      say("saving…");
      try {
        await ask(path, record);
        if (unsent.get(key) === record) unsent.delete(key);
      } catch (error) {
        say(error.refused ? `Not saved: ${error.message}` : "Not saved: the server does not answer. Trying again…", true);
        await new Promise((go) => setTimeout(go, 2000));
      }
    }
    say(saved());
  }

  function sent() {
    sending ??= sendAll().finally(() => { sending = null; });
    return sending;
  }

  return { sent, put(key, record) { unsent.set(key, record); sent(); }, isWaiting: () => unsent.size > 0 };
}
