// The first tab: the chosen layer's equation, and all layers over T, as bars and as a table.

/** Return each shown layer at the chosen sizes: its account, or why it cannot be built. */
function rowsOf(sizes) {
  return shownForms().map((form) => {
    const why = whyNot(form, sizes);
    const paper = state.printed ? printedOf(form, state.account, sizes) : null;
    return why ? { form, why } : { form, value: total(form, state.account, sizes), paper };
  });
}

const chosenForm = () => {
  const shown = shownForms();
  return shown.find((form) => form.name === state.form) || shown[shown.length - 1];
};

function drawCompare() {
  const sizes = bigs(state.sizes);
  const account = byName(DATA.accounts, state.account);
  const rows = rowsOf(sizes);
  const chosen = rows.find((row) => row.form === chosenForm());
  const base = rows.find((row) => row.form === BASE).value;
  const chips = chosen.why ? [] : chipsOf(chosen.form, state.account, sizes, Boolean(state.printed && chosen.paper));
  element("equation").innerHTML = equationHtml(chosen, chips, account);
  element("terms").innerHTML = termsHtml(chips, chosen.value);
  element("bars").innerHTML = barsHtml(rows, sizes);
  element("rows").innerHTML = rowsHtml(rows, base, sizes, account);
  element("say").textContent = sayText(chosen, account, base);
  drawChart(
    rows.filter((row) => !row.why).map((row) => row.form),
    sizes,
  );
  drawCopies(rows, base, sizes, account);
}

function chipHtml(chip, whole) {
  const share = Math.min(100, 100 * ratio(chip.value, whole));
  const title = `${chip.entries.map((one) => `${one.path} ${one.kind}`).join(", ")}: ${grouped(chip.value)}${chip.out ? ", left out by the paper" : ""}`;
  return (
    `<span class="term ${chip.family}${chip.out ? " out" : ""}" tabindex="0" data-term="${chip.key}" title="${escaped(title)}">` +
    `${coefficientHtml(chip.count)}${factorsHtml(chip.factors)}<i class="share" style="width:${share.toFixed(2)}%"></i></span>`
  );
}

function equationHtml(row, chips, account) {
  const head = `<b class="of ${formClass(row.form)}">${escaped(row.form.label)}</b> `;
  if (row.why) return `${head}<span class="why">${row.why}</span>`;
  const counted = chips.filter((chip) => !chip.out).map((chip) => chipHtml(chip, row.value));
  const out = chips.filter((chip) => chip.out).map((chip) => chipHtml(chip, row.value));
  const sum = `${head}= ${counted.join(" + ")}${out.length ? ` <span class="leftout">+ ${out.join(" + ")}</span>` : ""}`;
  const total = `<b>${grouped(row.value)}</b> ${escaped(account.unit)}`;
  if (!state.printed || !isPrinted(state.account)) return `<p>${sum}</p><p class="total">= ${total}</p>`;
  return `<p>${sum}</p><p class="total">${paperHtml(row, total)}</p>`;
}

function paperHtml({ paper, value }, total) {
  if (!paper) return `The MoA paper prints no equation of it. Exact: ${total}`;
  if (paper.why) return `${paper.why}. Exact: ${total}`;
  const rest = value - paper.value;
  const left = rest ? `leaves out <b>${grouped(rest)}</b>, ${percent(rest, value)} (grey)` : "leaves out nothing";
  return `${paper.name} as printed, ${nodeHtml(paper.size)} = <b>${grouped(paper.value)}</b>, ${left}; exact: ${total}`;
}

function termsHtml(chips, whole) {
  const rows = chips.flatMap((chip) =>
    chip.entries.map(
      (one) =>
        `<tr data-term="${chip.key}" tabindex="0" class="${chip.out ? "out" : ""}"><td><i class="key ${chip.family}"></i>${coefficientHtml(one.times)}${factorsHtml(chip.factors)}</td>` +
        `<td class="path">${escaped(one.path)} <small>${escaped(one.kind.replace(/_/g, " "))}</small></td><td class="n">${grouped(one.value)}</td><td class="n">${percent(one.value, whole)}</td></tr>`,
    ),
  );
  return `<thead><tr><th>term</th><th>module</th><th class="n">amount</th><th class="n">share</th></tr></thead><tbody>${rows.join("")}</tbody>`;
}

function barsHtml(rows, sizes) {
  const most = rows.reduce((n, row) => (!row.why && row.value > n ? row.value : n), 1n);
  const bars = rows.map((row) => {
    const name = `<button type="button" class="pick ${formClass(row.form)}" data-form="${row.form.name}" aria-pressed="${row.form === chosenForm()}">${escaped(row.form.label)}</button>`;
    if (row.why) return `${name}<span class="why">${row.why}</span>`;
    const parts = chipsOf(row.form, state.account, sizes, Boolean(state.printed && row.paper)).map(
      (chip) =>
        `<i class="part ${chip.family}${chip.out ? " out" : ""}" data-term="${chip.key}" style="width:${(100 * ratio(chip.value, most)).toFixed(3)}%" title="${grouped(chip.value)}"></i>`,
    );
    return `${name}<span class="bar">${parts.join("")}</span>`;
  });
  const found = [
    ...new Set(
      rows
        .filter((row) => !row.why)
        .flatMap((row) => groupsOf(row.form, state.account, sizes).map((group) => group.family)),
    ),
  ];
  const keys = found.map((family) => `<span><i class="key ${family}"></i>${escaped(DATA.families[family])}</span>`);
  return `<div class="barlist">${bars.join("")}</div><p class="families">${keys.join("")}</p>`;
}

/** Return the table's columns after the layer's name: heads, and the texts of each row; null without a number. */
function comparison(rows, base, sizes, account) {
  const mqa = whyNot(MQA, sizes) ? null : total(MQA, state.account, sizes);
  const papers = state.printed && isPrinted(state.account);
  const heads = [
    "exact",
    ...(state.unit === "raw" ? [] : ["rounded"]),
    "over MHA",
    "over MQA",
    ...(papers ? ["as printed"] : []),
  ];
  const cells = rows.map(({ value, why, paper }) => {
    if (why) return null;
    const rounded = state.unit === "raw" ? [] : [state.unit === "auto" && account.unit.startsWith("bytes") ? binary(value) : scaled(value, state.unit)];
    const over = [base, mqa].map((other) => (other ? times(ratio(value, other)) : "–"));
    return [
      grouped(value),
      ...rounded,
      ...over,
      ...(papers ? [paper && paper.value !== undefined ? grouped(paper.value) : "–"] : []),
    ];
  });
  return { heads, cells };
}

function rowsHtml(rows, base, sizes, account) {
  const { heads, cells } = comparison(rows, base, sizes, account);
  const head = heads.map((text) => `<th class="n ${text.split(" ").join("-")}">${text}</th>`).join("");
  const body = rows.map(({ form, why }, i) => {
    const texts = cells[i]
      ? cells[i].map((text, j) => `<td class="n ${heads[j].split(" ").join("-")}">${text}</td>`).join("")
      : `<td class="why" colspan="${heads.length}">${why}</td>`;
    return `<tr data-form="${form.name}"${form === chosenForm() ? ' class="chosen"' : ""}><th scope="row" class="${formClass(form)}">${escaped(form.label)}</th>${texts}</tr>`;
  });
  return `<caption>${escaped(titleOf(account))}, at T = ${grouped(state.sizes.T)}</caption><thead><tr><th>layer</th>${head}</tr></thead><tbody>${body.join("")}</tbody>`;
}

function sayText(row, account, base) {
  const plain = (html) => html.replace(/<[^>]*>/g, "");
  if (row.why) return `${row.form.label}: ${plain(row.why)}`;
  // MACs are the unit and the label
  const cost = account.label.startsWith(account.unit)
    ? `${grouped(row.value)} ${account.label}`
    : `${grouped(row.value)} ${account.unit} (${account.label})`;
  return `One layer of ${row.form.label} at T = ${grouped(state.sizes.T)}: ${cost}, ${times(ratio(row.value, base))} times MHA of the same width.`;
}

/** Return an account's label, with its unit where the label lacks it. */
const titleOf = ({ label, unit }) => (unit.startsWith("bytes") ? `${label}, ${unit}` : label);

let chart = null;

function drawChart(forms, sizes) {
  const crossings = crossingsOf(forms, state.account, sizes);
  chart = chartOf(forms, state.account, sizes, state.axis, element("chart").clientWidth, Boolean(state.printed));
  element("chart").innerHTML = chartSvg(chart, crossings, state.sizes.T);
  const account = byName(DATA.accounts, state.account);
  const over = state.axis === "ratio" ? `${account.label}, over MHA of the same width` : titleOf(account);
  element("chart-title").textContent = over;
  element("chart").setAttribute("aria-label", `${over}, against T. ${element("say").textContent}`);
  element("legend").innerHTML = chart.narrow ? legendHtml(chart) : "";
  element("crossings").innerHTML =
    crossings
      .map(
        ({ T, sign, a, b }) =>
          `<li>from T = <button type="button" class="at" data-t="${T}">${grouped(T)}</button> on, ${escaped(a.label)} costs ${sign > 0 ? "more" : "less"} than ${escaped(b.label)}</li>`,
      )
      .join("") || "<li class=none>No two of these lines cross.</li>";
  readOut(state.sizes.T);
}

/** Return the values of the lines at a T. */
function readOut(T) {
  const sizes = { ...bigs(state.sizes), T: BigInt(T) };
  const base = total(BASE, state.account, sizes);
  const texts = chart.lines
    .filter(({ form, paper }) => form !== BASE && !paper)
    .map(({ form }) => {
      const value = total(form, state.account, sizes);
      return `<span class="${formClass(form)}">${escaped(form.label)} ${state.axis === "ratio" ? times(ratio(value, base)) : scaled(value, "auto")}</span>`;
    });
  element("readout").innerHTML = `<b>T = ${grouped(T)}</b> ${texts.join(" ")}`;
}

/** Highlight a term in the equation, in its bar and in the table. */
function highlight(key) {
  for (const one of document.querySelectorAll("[data-term]")) one.classList.toggle("on", one.dataset.term === key);
}

let pinned = "";

function listenCompare() {
  const panel = element("compare");
  const termOf = (event) => event.target.closest("[data-term]")?.dataset.term;
  panel.addEventListener("mouseover", (event) => highlight(termOf(event) || pinned));
  panel.addEventListener("mouseleave", () => highlight(pinned));
  panel.addEventListener("focusin", (event) => highlight(termOf(event) || pinned));
  panel.addEventListener("click", (event) => {
    const { form, t } = event.target.closest("[data-form], [data-t]")?.dataset || {};
    const key = termOf(event);
    if (key) {
      pinned = key === pinned ? "" : key;
      const name = key.split(":")[0];
      if (name !== state.form) change({ form: name });
      highlight(pinned);
    } else if (t) setSize("T", Number(t));
    else if (form) change({ form });
  });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && termOf(event)) event.target.click();
  });
  const picture = element("chart");
  const pointed = (event) => chart.toT(event.clientX - picture.getBoundingClientRect().left);
  picture.addEventListener("pointermove", (event) => readOut(pointed(event)));
  picture.addEventListener("pointerleave", () => readOut(state.sizes.T));
  picture.addEventListener("click", (event) => setSize("T", pointed(event)));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = nearestStop("T", state.sizes.T) + step;
    setSize("T", STOPS.T[Math.min(STOPS.T.length - 1, Math.max(0, at))]);
  });
}
