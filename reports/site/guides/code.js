// The theme's buttons of a code block are a landmark without a name, and on a touch screen blocks that scroll lose the
// keyboard's focus.
function fixCodeBlocks() {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) buttons.setAttribute("role", "none");
  for (const code of document.querySelectorAll("pre > code:not([tabindex])")) code.tabIndex = 0;
}
const watched = {subtree: true, childList: true, attributes: true, attributeFilter: ["tabindex"]};
new MutationObserver(fixCodeBlocks).observe(document.body, watched);
fixCodeBlocks();
