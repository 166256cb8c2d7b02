// The second tab: a printed number of a paper, and switches for the parts to count.

const PUBLISHED = DATA.published;
const PARTS = Object.keys(PUBLISHED.parts);

/** Return the number of a part in an address. */
const numberOf = (text) => String(PARTS.indexOf(text));

const judgedTable = () => byName(PUBLISHED.tables, state.table);
const judgedColumn = () => judgedTable().columns[state.column] || judgedTable().columns[0];
const judgedRow = () => judgedColumn().rows[state.row] || judgedColumn().rows[0];

/** Return the numbers of the parts that the table's rule counts. */
function ruleParts() {
  const { multiplicity } = judgedColumn();
  return Object.keys(multiplicity).filter((text) => multiplicity[text]).map(numberOf);
}

/** Return the numbers of the parts that are switched on, and a1, a2, ... for what closes the chosen row's gap. */
function countedParts() {
  if (state.counted) return new Set(state.counted.split("."));
  return new Set(ruleParts());
}

/** Return the parts of a model with their totals, and how many times each counts if switched on. */
function partsOf(preset) {
  const { quantity, multiplicity } = judgedColumn();
  return PUBLISHED.models[preset][quantity].map(([place, size]) => {
    const text = PARTS[place];
    const contraction = PUBLISHED.parts[text];
    return { id: numberOf(text), text, contraction, size: BigInt(size), times: BigInt(multiplicity[text] || 1) };
  });
}

const adjustmentsOf = (row) =>
  (row[5] || []).map(([text, size], i) => ({ id: `a${i}`, text, size: BigInt(size), times: 1n }));

/** Return how a row is printed: as its column, or as the row says. */
const printOf = (row, column) => row[6] || column.print;

const countedSum = (row, counted) =>
  [...partsOf(row[1]), ...(row === judgedRow() ? adjustmentsOf(row) : [])].reduce(
    (sum, part) => (counted.has(part.id) ? sum + part.size * part.times : sum),
    0n,
  );

function drawJudge() {
  const [table, column, row, counted] = [judgedTable(), judgedColumn(), judgedRow(), countedParts()];
  element("table").innerHTML = PUBLISHED.tables
    .map((one) => optionHtml(one.name, `${one.name}: ${one.title}`, one === table))
    .join("");
  element("column-of").innerHTML = table.columns
    .map((one, i) =>
      optionHtml(i, (one.label || { macs: "MACs", params: "parameters" }[one.quantity]) + (one.suffix ? `, ${one.suffix}` : ""), one === column),
    )
    .join("");
  element("table-rule").textContent = column.rule;
  element("printed-rows").innerHTML = column.rows.map((one, i) => printedRowHtml(one, i, column, counted)).join("");
  const fits = column.rows.filter((one) => printed(countedSum(one, counted), printOf(one, column)) === one[2]).length;
  element("fits").textContent = `These switches print ${fits} of the ${column.rows.length} rows.`;
  element("sum").innerHTML = sumHtml(row, column, counted);
  element("parts").innerHTML = partsHtml(row, counted);
  element("verdict").innerHTML = row[3]
    ? `<p>By the table's rule: <b class="v-${escaped(row[3].split(" ")[0])}">${escaped(row[3])}</b>${row[4] ? `. ${escaped(row[4])}` : ""}</p>`
    : "<p>The table's rule does not judge this column: the paper's vocabularies are not printed.</p>";
  element("judge-command").textContent = table.command;
}

function printedRowHtml(row, i, column, counted) {
  const own = printed(countedSum(row, counted), printOf(row, column));
  const same = own === row[2];
  return (
    `<tr class="${row === judgedRow() ? "chosen" : ""}" data-row="${i}"><td class="${same ? "yes" : "no"}">${same ? "✓" : "✗"}</td>` +
    `<th scope="row"><button type="button" class="pick">${escaped(row[0])}</button></th><td class="n">${escaped(row[2])}</td><td class="n">${escaped(own)}</td></tr>`
  );
}

function sumHtml(row, column, counted) {
  const sum = countedSum(row, counted);
  const own = printed(sum, printOf(row, column));
  const same = own === row[2];
  return (
    `<p class="big"><span>printed <b>${escaped(row[2])}</b></span> <span class="${same ? "yes" : "no"}">${same ? "✓ these switches print" : "✗ these switches print"} <b>${escaped(own)}</b></span></p>` +
    `<p><b>${escaped(row[0])}</b>${column.label ? "" : `, preset ${escaped(row[1])}`}: ${grouped(sum)}</p>`
  );
}

function partsHtml(row, counted) {
  let sum = 0n;
  const line = (part) => {
    const on = counted.has(part.id);
    if (on) sum += part.size * part.times;
    const many = part.times === 1n ? "" : ` <small>× ${part.times}</small>`;
    return (
      `<tr class="${on ? "" : "off"}"><td><label><input type="checkbox" data-part="${part.id}"${on ? " checked" : ""}><span>${escaped(part.text)}${many}</span></label></td>` +
      `<td class="n">${part.id[0] === "a" ? signed(part.size) : grouped(part.size * part.times)}</td><td class="n">${on ? grouped(sum) : ""}</td></tr>`
    );
  };
  const parts = [...partsOf(row[1])].sort((p, q) => q.contraction - p.contraction || Number(q.size - p.size));
  const closing = adjustmentsOf(row).map((part) => ({
    ...part,
    text: `${part.size < 0n ? "without" : "with"} the ${part.text}, as the explanation says`,
  }));
  return `<thead><tr><th>counted</th><th class="n">amount</th><th class="n">running sum</th></tr></thead><tbody>${[...parts, ...closing].map(line).join("")}</tbody>`;
}

/** Sets of switches by the name of their button. */
const SWITCHES = {
  rule: () => [],
  contractions: () =>
    partsOf(judgedRow()[1])
      .filter((part) => part.contraction)
      .map((part) => part.id),
  explained: () => [...ruleParts(), ...adjustmentsOf(judgedRow()).map((part) => part.id)],
  nothing: () => ["none"],
};

function listenJudge() {
  element("absent").innerHTML = PUBLISHED.absent
    .map(({ name, title, why }) => `<li><b>${escaped(name)}</b>: ${escaped(title)}; ${escaped(why)}</li>`)
    .join("");
  element("table").onchange = (event) => change({ table: event.target.value, column: "0", row: "0", counted: "" });
  element("column-of").onchange = (event) => change({ column: event.target.value, row: "0", counted: "" });
  element("printed-rows").onclick = (event) => {
    const chosen = event.target.closest("[data-row]");
    if (chosen) change({ row: chosen.dataset.row });
  };
  element("parts").onchange = (event) => {
    const counted = countedParts();
    counted[event.target.checked ? "add" : "delete"](event.target.dataset.part);
    counted.delete("none");
    change({ counted: [...counted].join(".") || "none" });
    document.querySelector(`[data-part="${event.target.dataset.part}"]`)?.focus();
  };
  element("switches").onclick = (event) => {
    const chosen = SWITCHES[event.target.dataset.switch];
    if (chosen) change({ counted: chosen().join(".") });
  };
}
