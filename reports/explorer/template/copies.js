// What can be copied: the command that prints the same number, and the table as text.

/** Return the command that prints this account of this layer. */
function reproduce(form, account, sizes) {
  const point = Object.entries(form.grid).map(([letter, node]) => `${letter}=${evaluate(node, sizes)}`);
  const column = account.column.replace("{w}", sizes.w);
  const asked = column ? ` --columns ${column} --context ${sizes.T}` : "";
  return `headcount grid '${point.join(" ")}' --counter closed-form${asked}`;
}

const TEXTS = {
  md: (heads, rows) =>
    [heads, heads.map((_, i) => (i ? "---:" : ":---")), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n"),
  LaTeX: (heads, rows) => {
    const line = (row) => `${row.map((text) => text.replace(/[&%_#]/g, "\\$&").replace(/–/g, "--")).join(" & ")} \\\\`;
    return [
      `\\begin{tabular}{l${"r".repeat(heads.length - 1)}}`,
      "\\toprule",
      line(heads),
      "\\midrule",
      ...rows.map(line),
      "\\bottomrule",
      "\\end{tabular}",
    ].join("\n");
  },
  CSV: (heads, rows) => {
    const cell = (text) => (/[",]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    return [heads, ...rows].map((row) => row.map(cell).join(",")).join("\n");
  },
};

/** Return the comparison as plain cells: dashes for sizes that cannot be built, raw numbers in CSV. */
function plainTable(kind, rows, base, sizes, account) {
  const { heads, cells } = comparison(rows, base, sizes, account);
  const raw = (text) => (kind === "CSV" ? text.replace(/,/g, "").replace("–", "") : text);
  const body = rows.map(({ form }, i) => [form.label, ...(cells[i] || heads.map(() => "–")).map(raw)]);
  return TEXTS[kind]([`${titleOf(account)}, T = ${state.sizes.T}`, ...heads], body);
}

let tableAs = null;

function drawCopies(rows, base, sizes, account) {
  tableAs = (kind) => plainTable(kind, rows, base, sizes, account);
  const form = chosenForm();
  element("command").textContent = reproduce(form, account, sizes);
  element("column").textContent = whyNot(form, sizes)
    ? "refuses these sizes with the same reason"
    : "prints the same number";
}

function listenCopies() {
  element("copies").onclick = async (event) => {
    const { copy } = event.target.dataset;
    if (!copy) return;
    const text = copy === "command" ? element("command").textContent : tableAs(copy);
    element("copied").hidden = false;
    element("copied").value = text;
    element("copied").select();
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = document.execCommand("copy");
    }
    element("copy-says").textContent = done ? "copied" : "select it and copy";
  };
}
