// The list of edits, and the decisions about them.

// All edits as columns; an edit is known by its place.
class EditTable {
  constructor() {
    this.columns = {};
    this.length = 0;
  }

  add(columns) {
    for (const [name, values] of Object.entries(columns)) {
      const column = (this.columns[name] ??= []);
      for (const value of values) column.push(value);
    }
    this.length = this.columns.id.length;
  }

  at(place) {
    return Object.fromEntries(Object.entries(this.columns).map(([name, values]) => [name, values[place]]));
  }

  // Places of the edits that match: {text, epoch, action, fault, decision}; empty means any.
  find(wanted, decisions) {
    const { id, image, epoch, action, fault, before, after, reason } = this.columns;
    const text = wanted.text.trim().toLowerCase();
    const holds = (value) => value !== null && value.toLowerCase().includes(text);
    const found = [];
    for (let place = 0; place < this.length; place += 1) {
      if (wanted.epoch !== "" && String(epoch[place]) !== wanted.epoch) continue;
      if (wanted.action !== "" && action[place] !== wanted.action) continue;
      if (wanted.fault !== "" && (fault[place] === "" ? "none" : "some") !== wanted.fault) continue;
      if (wanted.decision !== "" && (decisions.of(id[place]) || "open") !== wanted.decision) continue;
      if (text && ![before, after, id, image, reason].some((column) => holds(column[place]))) continue;
      found.push(place);
    }
    return found;
  }
}

// What was decided of each sample: "accepted" or "undone". Remembered by the browser, where it may.
class Decisions {
  constructor(facts) {
    this.facts = facts;
    this.memory = `curation-keep:${facts.fingerprint}:${facts.policy}:${facts.seed}`;
    this.byId = new Map();
    this.saved = true;
    this.onChange = () => {};
    if (facts.keep) this.merge(facts.keep);
    this.recall();
  }

  of(id) { return this.byId.get(id); }

  set(id, decision) {
    if (decision === null) this.byId.delete(id);
    else this.byId.set(id, decision);
    this.saved = false;
    this.onChange();
    this.remember();
  }

  count(decision) {
    let count = 0;
    for (const one of this.byId.values()) count += one === decision;
    return count;
  }

  toList() {
    const ids = (decision) => [...this.byId].filter((entry) => entry[1] === decision).map((entry) => entry[0]);
    return {
      format: "curation-keep", version: 1, roster: this.facts.roster,
      fingerprint: this.facts.fingerprint, sample_ids: ids("undone"), accepted: ids("accepted"),
    };
  }

  merge(list) {
    for (const id of list.accepted || []) this.byId.set(id, "accepted");
    for (const id of list.sample_ids || []) this.byId.set(id, "undone");
  }

  // Take up a saved keep-list; says what is wrong with one that is not of these annotations.
  load(text) {
    let list;
    try {
      list = JSON.parse(text);
    } catch (error) {
      return `the file is not JSON (${error.message})`;
    }
    if (!list || list.format !== "curation-keep" || !Array.isArray(list.sample_ids)) return "the file is not a keep-list";
    if (list.fingerprint !== this.facts.fingerprint) return "the keep-list belongs to other annotations";
    this.merge(list);
    this.onChange();
    this.remember();
    return "";
  }

  remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      try {
        localStorage.setItem(this.memory, JSON.stringify(this.toList()));
        this.saved = true;
      } catch (error) {
        console.warn("this browser does not store decisions", error);
      }
    }, 300);
  }

  recall() {
    try {
      const text = localStorage.getItem(this.memory);
      if (text) this.merge(JSON.parse(text));
    } catch (error) {
      console.warn("this browser does not store decisions", error);
    }
  }

  download() {
    const blob = new Blob([JSON.stringify(this.toList(), null, 1) + "\n"], { type: "application/json" });
    const link = make("a", { href: URL.createObjectURL(blob), download: "keep.json" });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    this.saved = true;
  }
}
