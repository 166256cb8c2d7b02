// Start the page.

const DRAW = { compare: drawCompare, models: drawModel, judge: drawJudge, heat: drawHeat };

function draw() {
  for (const tab of TABS) {
    element(tab).hidden = tab !== state.tab;
    const button = element(`tab-${tab}`);
    button.setAttribute("aria-selected", tab === state.tab);
    button.tabIndex = tab === state.tab ? 0 : -1;
  }
  document.title = `${element(`tab-${state.tab}`).textContent} – headcount cost calculator`;
  if (state.tab === TABS[0]) drawControls();
  DRAW[state.tab]();
}

function listenTabs() {
  element("tabs").addEventListener("click", (event) => {
    const tab = event.target.id.replace("tab-", "");
    if (TABS.includes(tab)) change({ tab });
  });
  element("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = TABS[(TABS.indexOf(state.tab) + step + TABS.length) % TABS.length];
    change({ tab: next });
    element(`tab-${next}`).focus();
  });
}

document.documentElement.classList.add("js");
buildControls();
for (const listen of [listenTabs, listenCompare, listenCopies, listenModel, listenJudge, listenHeat, listenTarget]) listen();
state = fromHash(location.hash);
draw();
addEventListener("hashchange", () => {
  state = fromHash(location.hash);
  draw();
});
addEventListener("resize", () => state.tab === TABS[0] && draw());
// the exact functions, for the console
window.headcount = {
  DATA,
  FORMS,
  total,
  chipsOf,
  whyNot,
  printedOf,
  bigs,
  crossingsOf,
  reproduce,
  printed,
  fromHash,
  toHash,
  PUBLISHED,
  MODELS,
  modelCosts,
  rankCosts,
  nearestMoa,
  modelFrom,
  targetFrom,
  stateOf,
  modelCommand,
};
