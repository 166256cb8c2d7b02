// The third tab: the heat map of counters.

const HEAT = DATA.heat;
const CELLS = HEAT.formulations.flatMap((formulation, i) =>
  HEAT.devices.flatMap((device, d) =>
    HEAT.counters.map((counter, c) => ({
      formulation,
      device,
      counter,
      read: HEAT.rows[i][d][c],
      id: `${formulation[0]}.${device}.${counter}`,
    })),
  ),
);

const errorOf = ({ read, formulation }) => (100 * (read ? read[0] : 0)) / formulation[2];

function buildHeat() {
  const heads = HEAT.devices.map(
    (device) => `<th colspan="${HEAT.counters.length}" scope="colgroup">${escaped(device)}</th>`,
  );
  const names = HEAT.devices
    .flatMap(() => HEAT.counters)
    .map((name) => `<th scope="col"><span>${escaped(name)}</span></th>`);
  const rows = HEAT.formulations.map(
    ([name, written]) =>
      `<tr><th scope="row" title="${escaped(written)}">${escaped(name)}</th>` +
      `${CELLS.filter((cell) => cell.formulation[0] === name)
        .map(cellHtml)
        .join("")}</tr>`,
  );
  element("heat-versions").textContent = HEAT.versions;
  element("heat-map").innerHTML =
    `<thead><tr><td></td>${heads.join("")}</tr><tr><td></td>${names.join("")}</tr></thead><tbody>${rows.join("")}</tbody>`;
}

function cellHtml(cell) {
  const at = `data-cell="${CELLS.indexOf(cell)}" tabindex="-1"`;
  if (typeof cell.read === "string") return `<td class="cell fails" ${at}>×</td>`;
  const error = errorOf(cell);
  if (!error) return `<td class="cell exact" ${at}></td>`;
  const shade = Math.min(1, Math.sqrt(Math.abs(error) / 100)).toFixed(2);
  const text =
    Math.abs(error) < 1 ? (error < 0 ? "−<1" : "<1") : `${error < 0 ? "−" : ""}${Math.abs(error).toFixed(0)}`;
  return `<td class="cell ${error < 0 ? "under" : "over"}" style="--shade:${shade}" ${at}>${text}</td>`;
}

function drawHeat() {
  if (!element("heat-map").innerHTML) buildHeat();
  const chosen = Math.max(
    0,
    CELLS.findIndex((cell) => cell.id === state.cell),
  );
  for (const one of element("heat-map").querySelectorAll(".cell")) {
    const is = Number(one.dataset.cell) === chosen;
    one.tabIndex = is ? 0 : -1;
    one.classList.toggle("chosen", is);
  }
  const { formulation, device, counter, read } = CELLS[chosen];
  const place = `<b>${escaped(counter)}</b> on ${escaped(device)}, <b>${escaped(formulation[0])}</b> (${escaped(formulation[1])})`;
  const detail =
    typeof read === "string"
      ? `<p>${place} gives no number: ${escaped(read)}</p>`
      : readingHtml(place, formulation, read);
  element("cell").innerHTML =
    `${detail}<p class="command"><code>headcount audit --device ${escaped(device)} --counter ${escaped(counter === "headcount" ? "torch" : counter)}</code></p>`;
}

function readingHtml(place, formulation, read) {
  const [difference, ...causes] = [read].flat(1);
  const exact = `exact ${grouped(formulation[2])}`;
  if (!difference) return `<p>${place} counts exactly: ${exact}.</p>`;
  const rows = causes.map(
    ([cause, calls, macs]) =>
      `<tr><td class="n">${signed(BigInt(macs))}</td><td>${escaped(cause)}</td><td class="n">${calls}</td></tr>`,
  );
  return (
    `<p>${place} reads ${grouped(formulation[2] + difference)}, ${exact}: <b>${signed(BigInt(difference))}</b>, ${((100 * difference) / formulation[2]).toFixed(2).replace("-", "−")}&nbsp;%.</p>` +
    `<table class="causes"><thead><tr><th class="n">of which</th><th>call</th><th class="n">calls</th></tr></thead><tbody>${rows.join("")}</tbody></table>`
  );
}

function listenHeat() {
  const map = element("heat-map");
  const choose = (number) => change({ cell: CELLS[number].id });
  map.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-cell]");
    if (cell) choose(Number(cell.dataset.cell));
  });
  map.addEventListener("keydown", (event) => {
    const across = HEAT.devices.length * HEAT.counters.length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const next = Number(event.target.dataset.cell) + step;
    if (!step || !CELLS[next]) return;
    event.preventDefault();
    choose(next);
    map.querySelector(`[data-cell="${next}"]`).focus();
  });
}
