// Summaries of search results are read from the pages, which a browser does not allow in pages opened from a file.
if (location.protocol === "file:" && window.DOCUMENTATION_OPTIONS) DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
