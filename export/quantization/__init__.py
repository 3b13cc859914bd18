"""How weights are stored: recipes, calibration, and the search for a mix of storages."""
