"""Documentation; `python -m docs.site` builds the site."""
