"""The book's drawings: one style, one palette, one function for each drawing.

A module here draws for one chapter, or for the labs' cards, and lists its drawings in ``DRAWINGS``
by file name. ``python -m press.drawings`` writes them to ``book/drawings``, where pages show them.
"""
