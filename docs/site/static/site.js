// Summaries of search results are read from the pages, which a browser does not allow in pages opened from a file.
if (location.protocol === "file:" && window.DOCUMENTATION_OPTIONS) DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Code that runs in the page: only where the site is served and was built with --live.
addEventListener("DOMContentLoaded", async () => {
  const blocks = [...document.querySelectorAll("div.highlight-js")];
  if (!location.pathname.endsWith("/docs/playground.html") || location.protocol === "file:" || !blocks.length) return;
  const base = new URL("../live/", location.href);
  const answer = await fetch(new URL("ready.json", base)).catch(() => null);
  if (!answer?.ok) return;
  const library = import(new URL("library/index.js", base));
  const opened = new Map();
  /** Opens each bundle once for all blocks. */
  const openBundle = async (path) => {
    if (!opened.has(path)) opened.set(path, (await library).openBundle(new URL(path, base)));
    return opened.get(path);
  };
  blocks.forEach((block, index) => addButton(block, index, openBundle));
  document.body.dataset.live = blocks.length; // for tests
});

/** Adds a button that runs the code of a block, and the lines that it prints. */
function addButton(block, index, openBundle) {
  const code = block.querySelector("pre");
  code.contentEditable = "plaintext-only";
  code.spellcheck = false;
  code.setAttribute("role", "textbox");
  code.setAttribute("aria-multiline", "true");
  code.setAttribute("aria-label", `Code ${index + 1}`);
  const button = document.createElement("button");
  button.className = "run";
  button.textContent = "Run";
  button.setAttribute("aria-label", `Run code ${index + 1}`);
  const output = document.createElement("pre");
  output.className = "printed";
  output.tabIndex = 0;
  output.hidden = true;
  output.setAttribute("role", "status");
  block.after(button, output);
  const print = (...values) => {
    output.textContent += values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" ") + "\n";
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    output.hidden = false;
    output.textContent = "";
    output.classList.remove("failed");
    button.textContent = "Running …";
    try {
      const run = new (async () => {}).constructor("openBundle", "console", code.textContent);
      await run(openBundle, { log: print });
    } catch (error) {
      output.classList.add("failed");
      print(`${error.name}: ${error.message}`);
    } finally {
      button.disabled = false;
      button.textContent = "Run";
    }
  });
}
