"""The book's drawings: one style, one palette, one function for each drawing.

A module here draws for one chapter, and lists its drawings in ``DRAWINGS`` by file name.
``python -m press.drawings`` writes them to ``book/drawings``, where the notebooks show them.
"""
