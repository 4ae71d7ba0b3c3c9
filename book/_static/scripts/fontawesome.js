// Stands in for the theme's 1.5 MB of icons as scripts. The icons come from a small font.
