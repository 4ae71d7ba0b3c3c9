"""The book in other forms: one PDF, an EPUB."""
