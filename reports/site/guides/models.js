// The search of the page of models: reads models.csv beside it, and shows the rows that have all words, in place of the
// examples that the page has.
const place = document.getElementById("models");
const MOST = 50;
const SHOWN = {
  library: "library", model: "model", class_name: "class", inputs: "inputs", parameters: "parameters",
  active_parameters: "active", macs: "MACs", cache_per_token: "cache per token", flop_counter_macs: "FlopCounterMode",
  reason: "why there is no count",
};
const NUMBERS = ["parameters", "active_parameters", "macs", "cache_per_token", "flop_counter_macs"];

// Returns the rows of a CSV text as objects by column.
function parse(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== ",") rows.push([]);
  }
  const [names, ...others] = rows.filter((row) => row.length > 1);
  return others.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]])));
}

function element(tag, text, parent) {
  const made = parent.appendChild(document.createElement(tag));
  made.textContent = text;
  return made;
}

function show(rows, words, table, status) {
  const found = rows.filter((row) => words.every((word) => row.words.includes(word)));
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  Object.values(SHOWN).forEach((title) => element("th", title, head));
  const body = table.createTBody();
  for (const row of found.slice(0, MOST)) {
    const line = body.insertRow();
    for (const name of Object.keys(SHOWN)) {
      const isNumber = NUMBERS.includes(name);
      const cell = element("td", isNumber && row[name] ? BigInt(row[name]).toLocaleString("en") : row[name] || "–", line);
      if (isNumber) cell.style.textAlign = "right";
    }
  }
  const models = found.length === 1 ? "1 model" : `${found.length} models`;
  status.textContent = models + (found.length > MOST ? `, the first ${MOST} shown` : "");
}

async function start() {
  let rows;
  try {
    rows = parse(await (await fetch("models.csv")).text());
  } catch {
    // a page that is opened as a file may read no other: the examples stay
    element("p", "The search of all models needs a server: python3 -m http.server -d build/docs", place);
    return;
  }
  const examples = [...place.children];
  const label = document.createElement("label");
  label.textContent = "Search: ";
  place.prepend(label);
  const box = label.appendChild(document.createElement("input"));
  box.type = "search";
  box.placeholder = "qwen3 moe";
  const status = element("p", "", place);
  status.setAttribute("role", "status");
  const table = element("table", "", place);
  table.tabIndex = 0;
  for (const row of rows) row.words = Object.keys(SHOWN).map((name) => row[name]).join(" ").toLowerCase();
  const update = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    examples.forEach((one) => (one.hidden = words.length > 0));
    show(words.length ? rows : [], words, table, status);
    if (!words.length) status.textContent = `${rows.length} models; the table has a few that many know`;
    table.hidden = !words.length;
  };
  box.addEventListener("input", update);
  update();
}

if (place) start();
