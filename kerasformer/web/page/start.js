// Says why the page cannot start, even where its modules cannot be loaded: hence no module, and old JavaScript.
(function () {
  "use strict";

  /** Shows a problem as soon as the page has a place for it. */
  function tell(title, text) {
    if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", function () { tell(title, text); });
      return;
    }
    document.getElementById("starting").hidden = true;
    document.getElementById("problem-title").textContent = title;
    document.getElementById("problem-text").textContent = text;
    document.getElementById("problem").hidden = false;
  }

  if (location.protocol === "file:") {
    tell("This page was opened as a file",
      "A browser runs it from a web server alone. On this computer: kerasformer serve FOLDER, with the folder of this file.");
  } else if (!("noModule" in document.createElement("script"))) {
    tell("This browser is too old", "It has no JavaScript modules. A current Chrome, Edge, Firefox or Safari runs this page.");
  }

  // A script or style sheet that is missing says so here, and only here: such events do not bubble.
  addEventListener("error", function (event) {
    var missing = event.target && (event.target.src || event.target.href);
    if (missing && location.protocol !== "file:") {
      tell("A file of this page is missing", missing + " could not be loaded. Reload the page, or copy the whole folder that "
        + "kerasformer web wrote to the server again.");
    }
  }, true);
})();
