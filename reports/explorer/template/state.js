// The reader's choices. The address holds those that differ from the start, so that a link shows the same page.

const MOST = 999999999;
const LEAST = Object.fromEntries(DATA.letters.map(({ letter, range }) => [letter, Math.min(range[0], 1)]));
const TABS = ["compare", "models", "judge", "heat"];
const UNITS = ["auto", "raw", "M", "G"];
const START = {
  tab: TABS[0],
  account: DATA.accounts[0].name,
  form: "moa",
  unit: UNITS[0],
  axis: "ratio",
  printed: "",
  show: DATA.shown.join(),
  table: DATA.published.tables[2].name,
  column: "0",
  row: "5",
  counted: "",
  cell: "",
  model: "llama3-8b",
  changed: "",
  rule: "palm",
  bytes: "2",
  optimizer: "adamw-mixed",
  window: "4096",
  tp: "8",
  dp: "64",
  macs: "100",
  params: "100",
};
let state = { ...START, sizes: { ...DATA.start } };

const CHOICES = {
  tab: TABS,
  unit: UNITS,
  axis: ["ratio", "absolute"],
  printed: ["", "1"],
  account: DATA.accounts.map((one) => one.name),
  form: FORMS.map((one) => one.name),
  table: DATA.published.tables.map((one) => one.name),
  rule: DATA.models.rules.map((one) => one.name),
  bytes: ["1", "2", "4", "8"],
  optimizer: Object.keys(DATA.models.recipes),
};
const COUNTS = ["window", "tp", "dp", "macs", "params"];

/** Return why text is no size of at least `least`; empty if it is one. */
function whyNotSize(text, least) {
  const fits = /^\d{1,9}$/.test(text) && Number(text) >= least;
  return fits ? "" : `must be a whole number from ${least} to ${grouped(MOST)}, not “${text}”`;
}

/** Return a size from text; the first size where the text is none. */
function sizeFrom(letter, text) {
  return whyNotSize(text, LEAST[letter]) ? DATA.start[letter] : Number(text);
}

/** Return the state of an address; missing and invalid values are those of the start. */
function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const found = { ...START, sizes: { ...DATA.start } };
  for (const [name, text] of given) {
    if (name in DATA.start) found.sizes[name] = sizeFrom(name, text);
    else if (COUNTS.includes(name)) found[name] = whyNotSize(text, 1) ? START[name] : text;
    else if (name in START && (!CHOICES[name] || CHOICES[name].includes(text))) found[name] = text;
  }
  // the baseline is always shown
  const shown = [BASE.name, ...found.show.split(",")];
  found.show = FORMS.map((form) => form.name)
    .filter((name) => shown.includes(name))
    .join();
  return found;
}

function toHash(from) {
  const out = new URLSearchParams();
  for (const letter in DATA.start) if (from.sizes[letter] !== DATA.start[letter]) out.set(letter, from.sizes[letter]);
  for (const name in START) if (from[name] !== START[name]) out.set(name, from[name]);
  return out.toString();
}

let writing = 0;

/** Change the state, draw again, and write the address when nothing has changed for a moment. */
function change(what) {
  state = { ...state, ...what };
  draw();
  clearTimeout(writing);
  writing = setTimeout(() => history.replaceState(null, "", `#${toHash(state)}`), 150);
}

const shownForms = () => FORMS.filter((form) => state.show.split(",").includes(form.name));
