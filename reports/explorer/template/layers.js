// The layers, their terms and their accounts at given sizes.

const DATA = JSON.parse(element("data").textContent);
const FORMS = DATA.forms;
const BASE = FORMS[0];
const MQA = byName(FORMS, "mqa");

const bigs = (sizes) => Object.fromEntries(Object.entries(sizes).map(([letter, size]) => [letter, BigInt(size)]));

/** Return the number of the last case that fits these sizes. */
function caseAt(form, sizes) {
  const holds = form.cases.map((one) => Object.entries(one).every(([letter, size]) => Number(sizes[letter]) === size));
  return holds.lastIndexOf(true);
}

const GROUPS = new Map();

/** Return the groups of equal terms of an account: family, factors, entries and their count. */
function groupsOf(form, account, sizes) {
  const now = caseAt(form, sizes);
  const key = `${form.name} ${account} ${now}`;
  const [of, times] = byName(DATA.accounts, account).multiple;
  if (!GROUPS.has(key))
    GROUPS.set(
      key,
      form.accounts[of][now].map((place) => groupFrom(form.groups[place], BigInt(times))),
    );
  return GROUPS.get(key);
}

function groupFrom([family, factors, of], multiple) {
  const scaled = ([above, below]) => [BigInt(above) * multiple, BigInt(below)];
  const entries = of.map(([path, kind, times, counted]) => ({ path, kind, times: scaled(times), out: !counted }));
  return { family, factors, entries, count: sumOf(entries.map((one) => one.times)) };
}

/** Return the sum of fractions as numerator and denominator, which is 1 for an integer. */
function sumOf(fractions) {
  const [above, below] = fractions.reduce(([a, b], [c, d]) => (b === d ? [a + c, b] : [a * d + c * b, b * d]));
  return above % below === 0n ? [above / below, 1n] : [above, below];
}

const productOf = (group, sizes) => group.factors.reduce((value, factor) => value * evaluate(factor, sizes), 1n);
const timesOf = ([above, below], value) => divide(above * value, below);

const total = (form, account, sizes) =>
  groupsOf(form, account, sizes).reduce((sum, group) => sum + timesOf(group.count, productOf(group, sizes)), 0n);

/** Return the terms of an account with their values; `split`: apart what the paper counts and what it leaves out. */
function chipsOf(form, account, sizes, split) {
  return groupsOf(form, account, sizes).flatMap((group, i) => {
    const product = productOf(group, sizes);
    const parts = split ? [false, true].map((out) => group.entries.filter((one) => one.out === out)) : [group.entries];
    return parts.flatMap((some, out) => {
      if (!some.length) return [];
      const entries = some.map((one) => ({ ...one, value: timesOf(one.times, product) }));
      const count = sumOf(some.map((one) => one.times));
      const key = `${form.name}:${i}${out ? "o" : ""}`;
      return [{ ...group, key, entries, count, value: timesOf(count, product), out: out === 1 }];
    });
  });
}

/** Return as HTML why a layer of these sizes cannot be built; empty if it can. */
function whyNot(form, sizes) {
  const says = (nodes) => {
    const unknown = nodes.filter((node) => typeof node !== "number");
    return unknown.map((node) => `${nodeHtml(node)} = ${grouped(evaluate(node, sizes))}`).join(", ");
  };
  for (const [kind, ...of] of form.needs) {
    const values = of.map((node) => evaluate(node, sizes));
    if (kind === "divides" && values[1] % values[0])
      return `${nodeHtml(of[0])} must divide ${nodeHtml(of[1])}: ${says(of)}`;
    if (kind === "chain" && values.some((value, i) => i && values[i - 1] > value))
      return `needs ${of.map((node) => nodeHtml(node)).join(" ≤ ")}: ${says(of)}`;
  }
  return "";
}

/** Return the MoA paper's equation of an account: name and value, or why it does not apply; null without one. */
function printedOf(form, account, sizes) {
  const equation = form.printed[account];
  if (!equation) return null;
  const unmet = equation.where.find(([a, b]) => evaluate(a, sizes) !== evaluate(b, sizes));
  if (unmet)
    return { name: equation.name, why: `${equation.name} is of ${unmet.map((node) => nodeHtml(node)).join(" = ")}` };
  return { name: equation.name, size: equation.size, value: evaluate(equation.size, sizes) };
}

const isPrinted = (account) => FORMS.some((form) => form.printed[account]);
