// Format numbers and sizes.

const byName = (list, name) => list.find((one) => one.name === name);
const element = (id) => document.getElementById(id);
/** Return text as HTML, also between quotes. */
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

const grouped = (n) => n.toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const signed = (n) => (n < 0n ? `−${grouped(-n)}` : `+${grouped(n)}`);

const SCALES = { T: 10n ** 12n, G: 10n ** 9n, M: 10n ** 6n, k: 10n ** 3n };

/** Format a number in a unit: raw, one of SCALES, or auto, the largest that is not above it. */
function scaled(n, unit) {
  const name = unit === "auto" ? Object.keys(SCALES).find((key) => n >= SCALES[key]) : unit;
  if (!SCALES[name]) return grouped(n);
  const thousandths = (n * 2000n + SCALES[name]) / (2n * SCALES[name]);
  return `${grouped(thousandths / 1000n)}.${(thousandths % 1000n).toString().padStart(3, "0")}\u00a0${name}`;
}

/** Format bytes in the largest binary unit that is not above them. */
function binary(n) {
  const power = [4n, 3n, 2n, 1n].find((k) => n >= 1024n ** k);
  if (!power) return `${grouped(n)}\u00a0bytes`;
  const thousandths = (n * 2000n + 1024n ** power) / (2n * 1024n ** power);
  return `${grouped(thousandths / 1000n)}.${(thousandths % 1000n).toString().padStart(3, "0")}\u00a0${["KiB", "MiB", "GiB", "TiB"][power - 1n]}`;
}

/** Format a ratio: three decimals, fewer for large ones, a power of ten for what would be 0.000. */
function times(value) {
  if (value && value < 0.001) return value.toExponential(1);
  return value.toFixed(value < 10 ? 3 : 1).replace(/\B(?=(\d{3})+\.)/g, ",");
}

/** Format a tick of an axis in few characters. */
function short(value) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, value)) / 3 + 1e-9));
  return value < 1e4 ? String(+value.toFixed(3)) : `${+(value / 1000 ** power).toFixed(1)}${"kMGT"[power - 1]}`;
}
const percent = (part, whole) => (whole ? `${(100 * ratio(part, whole)).toFixed(1)}\u00a0%` : "");

/** Return an option of a choice, with its value as text unless another is given. */
const optionHtml = (value, text = value, chosen = false) =>
  `<option value="${escaped(value)}"${chosen ? " selected" : ""}>${escaped(text)}</option>`;

function letterHtml(name) {
  const [base, below] = escaped(name).split("_");
  return `<i>${base}</i>${below ? `<sub>${below}</sub>` : ""}`;
}

/** Format a node as HTML; `inside` a product a sum has brackets. */
function nodeHtml(node, inside = false) {
  if (typeof node === "number") return String(node);
  if (typeof node === "string") return letterHtml(node);
  const [operator, ...parts] = node;
  if (operator === "min") return `min(${parts.map((part) => nodeHtml(part)).join(", ")})`;
  if (operator === "ceil") return `⌈${nodeHtml(parts[0], true)} / ${nodeHtml(parts[1], true)}⌉`;
  if (operator === "/") return `${nodeHtml(parts[0], true)} / ${nodeHtml(parts[1], true)}`;
  if (operator === "*") return factorsHtml(parts.flatMap((part) => (part[0] === "*" ? part.slice(1) : [part])));
  const text = parts.map((part, i) => {
    const negative = part[0] === "*" && part.includes(-1);
    const rest = negative ? ["*", ...part.slice(1).filter((x) => x !== -1)] : part;
    return (negative ? " − " : i ? " + " : "") + nodeHtml(rest);
  });
  return inside ? `(${text.join("")})` : text.join("");
}

/** Format a product; equal factors are a power. */
function factorsHtml(factors) {
  const texts = factors.map((factor) => nodeHtml(factor, true));
  const power = (text) => texts.filter((other) => other === text).length;
  return [...new Set(texts)].map((text) => text + (power(text) > 1 ? `<sup>${power(text)}</sup>` : "")).join("&#8239;");
}

/** Format the coefficient of a term: nothing for 1. */
function coefficientHtml([above, below]) {
  const text = below === 1n ? String(above) : above === 1n && below === 2n ? "½" : `${above}/${below}`;
  return text === "1" ? "" : `${text}&#8239;`;
}
