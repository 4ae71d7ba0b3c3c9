"use strict";

// An excerpt of a search result is read from its page, which a browser allows from a server only.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// What bears the very name that was typed comes first.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Scorer === "undefined") return;
  const typed = new URLSearchParams(location.search).get("q")?.trim().toLowerCase();
  Scorer.score = ([, name, , , score]) => (name === typed || name.endsWith(`/${typed}`) ? 100 : score);
});

// A link to a verdict shows what is folded in it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
document.addEventListener("DOMContentLoaded", unfold);
window.addEventListener("hashchange", unfold);
