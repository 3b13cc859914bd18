// Shows why the page cannot start, even if its modules cannot be loaded. Therefore this file is not a module and uses old
// JavaScript.
(function () {
  "use strict";

  /** Shows a problem as soon as the document is ready. */
  function showProblem(title, text) {
    if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", function () { showProblem(title, text); });
      return;
    }
    document.getElementById("starting").hidden = true;
    document.getElementById("problem-title").textContent = title;
    document.getElementById("problem-text").textContent = text;
    document.getElementById("problem").hidden = false;
  }

  if (location.protocol === "file:") {
    showProblem("This page was opened as a file",
      "It must come from a web server. On this computer, run kerasformer web FOLDER --serve, where FOLDER is the folder of this file.");
  } else if (!("noModule" in document.createElement("script"))) {
    showProblem("This browser is too old", "It does not support JavaScript modules. Use a current Chrome, Edge, Firefox or Safari.");
  }

  // Errors of missing scripts and style sheets do not bubble, so this listener captures them.
  addEventListener("error", function (event) {
    var missing = event.target && (event.target.src || event.target.href);
    if (missing && location.protocol !== "file:") {
      showProblem("A file of this page is missing", missing + " could not be loaded. Reload the page, or copy the complete folder that "
        + "kerasformer web wrote to the server again.");
    }
  }, true);
})();
