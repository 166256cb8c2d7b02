// Lengths T from which one layer costs more than another, solved in integers.

/** Return 2 f as [a, b, c] of a T^2 + b T + c; null where f is no such polynomial of T up to `most`. */
function polynomial(f, most) {
  const [one, two, three] = [1n, 2n, 3n].map(f);
  const a = three - 2n * two + one;
  const b = 2n * (two - one) - 3n * a;
  const c = 2n * one - a - b;
  return [7n, 1000003n].map((T) => (T < most ? T : most)).every((T) => a * T * T + b * T + c === 2n * f(T)) ? [a, b, c] : null;
}

/** Return integers near the real roots of a T^2 + b T + c. */
function nearRoots([a, b, c]) {
  if (!a) return b ? [floorDivide(b < 0n ? c : -c, b < 0n ? -b : b)] : [];
  const inside = b * b - 4n * a * c;
  if (inside < 0n) return [];
  const root = squareRoot(inside);
  const sign = a < 0n ? -1n : 1n;
  return [-root, root].map((part) => floorDivide(sign * (part - b), 2n * a * sign));
}

/** Return each T at which f changes its sign, with the new sign; zero has none. f is a polynomial up to T = `bend` and
 * another from T = `bend` - 1 on. */
function signChanges(f, bend) {
  const parts = [[0n, bend], [bend - 1n, BigInt(MOST)]].map(([from, to]) => [from, polynomial((T) => f(from + T), to - from)]);
  const sign = (T) => (f(T) > 0n ? 1 : f(T) < 0n ? -1 : 0);
  const roots = parts.flatMap(([from, solved]) => (solved ? nearRoots(solved).map((T) => from + T) : []));
  const near = [1n, ...roots].flatMap((T) => [T - 1n, T, T + 1n, T + 2n]);
  const places = [...new Set(near)].filter((T) => T > 1n && T <= BigInt(MOST)).sort((x, y) => (x < y ? -1 : 1));
  let last = sign(1n);
  return places.flatMap((T) => {
    const now = sign(T);
    const changed = now && last && now !== last;
    last = now || last;
    return changed ? [{ T, sign: now }] : [];
  });
}

/** Return the layers without those that cost as much as an earlier one at every T. */
function distinct(forms, account, sizes) {
  const seen = new Set();
  return forms.filter((form) => {
    const key = [1n, 2n, 3n].map((T) => total(form, account, { ...sizes, T })).join();
    return !seen.has(key) && seen.add(key);
  });
}

/** Return each T where two of the layers change their order, first those of the first layer. */
function crossingsOf(forms, account, sizes) {
  const value = (form, T) => total(form, account, { ...sizes, T });
  const bend = account === "windowed" ? sizes.w : 1n;
  const found = distinct(forms, account, sizes).flatMap((a, i, all) =>
    all
      .slice(0, i)
      .flatMap((b) =>
        signChanges((T) => value(a, T) - value(b, T), bend).map(({ T, sign }) => ({
          T,
          sign,
          a,
          b,
          value: value(a, T),
          base: value(BASE, T),
        })),
      ),
  );
  return [...found.filter((one) => one.b === BASE), ...found.filter((one) => one.b !== BASE)];
}
