// Exact numbers. A node is an integer, a letter, or [operator, operand, ...]; sizes are BigInt by letter.

const OPERATORS = {
  "+": (values) => values.reduce((a, b) => a + b),
  "*": (values) => values.reduce((a, b) => a * b),
  min: (values) => values.reduce((a, b) => (a < b ? a : b)),
  ceil: ([a, b]) => -floorDivide(-a, b),
  "/": ([a, b]) => divide(a, b),
};

function evaluate(node, sizes) {
  if (typeof node === "string") return sizes[node];
  if (typeof node === "number") return BigInt(node);
  return OPERATORS[node[0]](node.slice(1).map((part) => evaluate(part, sizes)));
}

/** Return a / b, which must be an integer. */
function divide(a, b) {
  if (a % b) throw new RangeError(`${b} does not divide ${a}`);
  return a / b;
}

/** Return a / b rounded down, for b > 0. */
function floorDivide(a, b) {
  const quotient = a / b;
  return a % b < 0n ? quotient - 1n : quotient;
}

/** Return the largest integer whose square is at most n. */
function squareRoot(n) {
  if (n < 2n) return n;
  let x = BigInt(Math.floor(Math.sqrt(Number(n)))) + 1n;
  for (;;) {
    const next = (x + n / x) >> 1n;
    if (next >= x) return x;
    x = next;
  }
}

/** Return a / b as a floating-point number. */
function ratio(a, b) {
  return Number((a * 10n ** 18n) / b) / 1e18;
}

/** Return number / scale as a table's rounding rule prints it. */
function printed(number, rule) {
  const decimals = BigInt(rule.decimals);
  const scale = BigInt(rule.scale);
  // a step is above / 10^decimals of the unit
  let above = BigInt(rule.multiple);
  if (rule.significant) {
    const digits = (number / scale).toString().length - rule.significant;
    above = 10n ** BigInt(Math.max(digits, 0)) * 10n ** decimals;
  }
  const [shift, of] = rule.shift.map(BigInt);
  const steps = floorDivide(number * 10n ** decimals * of + shift * above * scale, above * scale * of);
  const text = (steps * above).toString().padStart(Number(decimals) + 1, "0");
  const point = text.length - Number(decimals);
  return text.slice(0, point) + (decimals ? `.${text.slice(point)}` : "") + rule.unit;
}
