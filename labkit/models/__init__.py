"""What is trained or loaded: each model a module, none imported by itself."""
