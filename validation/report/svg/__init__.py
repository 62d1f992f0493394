"""The report's inline SVG: palette, elements, and on them plots, charts and heat maps. No other module writes any."""
