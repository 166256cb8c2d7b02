// The chart: cost over MHA of the same width against T, one line a layer, with the places where lines cross.

const DASHES = ["", "", "", "7 3", "2 3", "9 3 2 3", "5 2", "1 3", "12 3", "4 4"];
const POINTS = 72;

/** Return about `wanted` round numbers that cover lowest to highest, at least `least` apart. */
function ticks(lowest, highest, wanted, least) {
  const rough = (highest - lowest) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999 && s >= least) || least;
  const first = Math.floor(lowest / step + 1e-9);
  const last = Math.ceil(highest / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** Return positions at least `gap` apart within [low, high], in the order of the wanted ones and near them. */
function spread(wanted, gap, low, high) {
  const order = wanted.map((_, i) => i).sort((i, j) => wanted[i] - wanted[j]);
  const at = [...wanted];
  order.forEach((i, n) => {
    at[i] = Math.max(at[i], n ? at[order[n - 1]] + gap : low);
  });
  let limit = high;
  for (const i of [...order].reverse()) {
    at[i] = Math.min(at[i], limit);
    limit = at[i] - gap;
  }
  return at;
}

/** Return what the chart shows: the lines, and the function from a pointer's position to T. */
function chartOf(forms, account, sizes, axis, width, papers) {
  const narrow = width < 520;
  const height = narrow ? 260 : 340;
  const box = { left: axis === "ratio" ? 44 : 58, right: width - (narrow ? 12 : 132), top: 14, bottom: height - 44 };
  const most = Math.max(18, Math.ceil(Math.log2(Number(sizes.T))));
  const Ts = Array.from({ length: POINTS }, (_, i) => BigInt(Math.round(2 ** ((most * i) / (POINTS - 1)))));
  const at = Ts.map((T) => ({ ...sizes, T }));
  const base = at.map((point) => total(BASE, account, point));
  const scale = (value, over) => (axis === "ratio" ? ratio(value, over) : Math.log10(Number(value)));
  const lines = forms.map((form) => ({
    form,
    name: form.label,
    values: at.map((point, i) => scale(total(form, account, point), base[i])),
  }));
  // the paper's equation of a layer over its equation of MHA
  const over = (form, point) => ratio(printedOf(form, account, point).value, printedOf(BASE, account, point).value);
  if (papers && axis === "ratio")
    for (const form of forms.filter((one) => one !== BASE && printedOf(one, account, sizes)?.value))
      lines.push({
        form,
        name: `${form.label}, ${form.printed[account].name}`,
        paper: true,
        values: at.map((point) => over(form, point)),
      });
  const all = lines.flatMap((line) => line.values);
  const [from, to, least] = axis === "ratio" ? [0, Math.max(...all, 1.1), 0] : [Math.min(...all), Math.max(...all), 1];
  const marks = ticks(from, to, narrow ? 4 : 6, least);
  const [low, high] = [marks[0], marks[marks.length - 1]];
  const x = (T) => box.left + ((box.right - box.left) * Math.log2(T)) / most;
  const y = (value) => box.bottom - ((box.bottom - box.top) * (value - low)) / (high - low || 1);
  const toT = (px) => Math.round(2 ** Math.min(most, Math.max(0, ((px - box.left) / (box.right - box.left)) * most)));
  return { narrow, width, height, box, most, Ts, lines, marks, x, y, scale, toT, axis };
}

const formClass = (form) => `f${FORMS.indexOf(form)}`;

function chartSvg(chart, crossings, T) {
  const { box, x, y, lines, marks, width, height, narrow } = chart;
  const out = [`<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">`];
  for (let k = 0; k <= chart.most; k += narrow ? 4 : 2) {
    out.push(`<line class="grid" x1="${x(2 ** k)}" x2="${x(2 ** k)}" y1="${box.top}" y2="${box.bottom}"/>`);
    out.push(
      `<text x="${x(2 ** k)}" y="${box.bottom + 17}" text-anchor="middle">${2 ** (k % 10)}${["", "k", "M", "G"][Math.floor(k / 10)]}</text>`,
    );
  }
  for (const mark of marks) {
    const text = chart.axis === "ratio" ? short(mark) : `10<tspan dy="-5" font-size="9">${mark}</tspan>`;
    out.push(`<line class="grid" x1="${box.left}" x2="${box.right}" y1="${y(mark)}" y2="${y(mark)}"/>`);
    out.push(`<text x="${box.left - 7}" y="${y(mark) + 4}" text-anchor="end">${text}</text>`);
  }
  out.push(`<text x="${(box.left + box.right) / 2}" y="${height - 6}" text-anchor="middle">T, tokens</text>`);
  out.push(`<line class="now" x1="${x(T)}" x2="${x(T)}" y1="${box.top}" y2="${box.bottom}"/>`);
  const ends = spread(
    lines.map((line) => y(line.values[POINTS - 1])),
    16,
    box.top + 4,
    box.bottom,
  );
  lines.forEach((line, i) => {
    const { form, values, name } = line;
    const points = values.map((value, j) => `${x(Number(chart.Ts[j])).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    out.push(`<polyline ${lineStyle(line)} points="${points}"/>`);
    if (narrow) return;
    const end = y(values[POINTS - 1]);
    out.push(
      `<line class="lead ${formClass(form)}" x1="${box.right}" y1="${end}" x2="${box.right + 10}" y2="${ends[i]}"/>`,
    );
    out.push(
      `<text class="name ${formClass(form)}${form.name === state.form ? " chosen" : ""}" x="${box.right + 13}" y="${ends[i] + 4}">${escaped(name.replace(" of the", ",").replace(/ \(.*?\):.*/, ""))}</text>`,
    );
  });
  out.push(...badges(chart, crossings), "</svg>");
  return out.join("");
}

/** Return the attributes of a line: colour, dashes, and whether it is chosen or of the paper's equation. */
function lineStyle({ form, paper }) {
  const more = paper ? " paper" : form.name === state.form ? " chosen" : "";
  return `class="line ${formClass(form)}${more}" stroke-dasharray="${paper ? "1 4" : DASHES[FORMS.indexOf(form)]}"`;
}

function legendHtml({ lines }) {
  const sample = (line) =>
    `<svg width="26" height="10" aria-hidden="true"><line ${lineStyle(line)} x1="0" x2="26" y1="5" y2="5"/></svg>`;
  return lines
    .map((line) => `<span class="${formClass(line.form)}">${sample(line)} ${escaped(line.name)}</span>`)
    .join("");
}

/** Draw a numbered disc at each crossing within the chart, moved where it would cover another. */
function badges({ box, x, y, scale, most }, crossings) {
  const placed = [];
  return crossings.map((crossing, i) => {
    const T = Number(crossing.T);
    if (T > 2 ** most) return "";
    const [cx, cy] = [x(T), y(scale(crossing.value, crossing.base))];
    const free = ([px, py]) => placed.every(([qx, qy]) => Math.max(Math.abs(px - qx), Math.abs(py - qy)) > 18);
    const inside = ([px, py]) => px > box.left + 8 && px < box.right - 8 && py > box.top + 6 && py < box.bottom - 9;
    const turned = (r, degrees) => [
      cx + r * Math.cos((degrees * Math.PI) / 180),
      cy + r * Math.sin((degrees * Math.PI) / 180),
    ];
    const around = [16, 32, 48, 64, 80, 96].flatMap((r) =>
      [-90, 90, -45, 135, 45, -135, 0, 180].map((degrees) => turned(r, degrees)),
    );
    const place = around.find((p) => free(p) && inside(p));
    // without room only the list below shows it
    if (!place) return `<circle class="dot" cx="${cx}" cy="${cy}" r="3"/>`;
    placed.push(place);
    return (
      `<circle class="dot" cx="${cx}" cy="${cy}" r="3"/><line class="lead" x1="${cx}" y1="${cy}" x2="${place[0]}" y2="${place[1]}"/>` +
      `<circle class="badge" cx="${place[0]}" cy="${place[1]}" r="8.5"/><text class="number" x="${place[0]}" y="${place[1] + 4}" text-anchor="middle">${i + 1}</text>`
    );
  });
}
