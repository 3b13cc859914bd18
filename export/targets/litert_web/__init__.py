"""LiteRT.js in a browser."""
