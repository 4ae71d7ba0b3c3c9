"""What is drawn: plots, and live figures with their scripts; none imported by itself."""
