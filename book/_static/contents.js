"use strict";

// The page's contents mark what is being read: the last heading above a line that lies a third down
// what one sees of the text, and at the foot of the page at the foot of the window.
document.addEventListener("DOMContentLoaded", () => {
  const DOWN = 1 / 3;
  const NEAR = 3; // what is read, what came before it and what comes next: book.css shows these beside verdicts
  const column = document.getElementById("pst-secondary-sidebar");
  const nav = document.getElementById("pst-page-toc-nav");
  if (!column || !nav) return;
  const parts = [...nav.querySelectorAll("a")].flatMap((link) => {
    const heading = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    const item = link.parentElement;
    // A section out of sight is not laid out: where it begins is known, and where its parts do, not.
    const section = heading?.closest("article > section > section") ?? heading;
    return heading && section && item ? [{ link, item, heading, section }] : [];
  });
  column.classList.toggle("short", Boolean(document.querySelector("article .beside > .verdicts")));
  const title = column.querySelector(".onthispage");
  let asked = false;
  /** @type {HTMLElement | undefined} */
  let chosen; // in the contents: where the page ends before it, its heading is not on top
  /** @type {HTMLElement | undefined | null} */
  let marked = null; // undefined where nothing is read yet

  const bottomOf = (/** @type {string} */ name) => (
    document.querySelector(name)?.getBoundingClientRect().bottom ?? 0
  );

  function read() {
    if (chosen && parts.some(({ link, heading }) => link === chosen && isInSight(heading))) return chosen;
    const top = Math.max(0, bottomOf(".bd-header-article"), bottomOf(".stage-pinned:not(.stage-beside) .live"));
    const { scrollHeight } = document.documentElement;
    const most = scrollHeight - innerHeight;
    const glide = Math.min(most, innerHeight);
    const near = glide > 0 ? Math.max(0, 1 - (most - scrollY) / glide) : 0;
    const line = top + (innerHeight - top) * (DOWN + (1 - DOWN) * near);
    const begins = (part) => part.getBoundingClientRect().top <= line;
    return parts.findLast(({ heading, section }) => begins(section) && begins(heading))?.link;
  }
  function isInSight(heading) {
    const { top } = heading.getBoundingClientRect();
    return top >= 0 && top < innerHeight;
  }
  function mark() {
    asked = false;
    const now = read();
    if (now === marked) return;
    marked?.removeAttribute("aria-current");
    now?.setAttribute("aria-current", "location");
    marked = now;
    const at = parts.findIndex(({ link }) => link === now);
    const first = Math.max(0, Math.min(at - 1, parts.length - NEAR));
    title?.setAttribute("data-place", `${at < 0 ? "" : `${at + 1} of `}${parts.length}`);
    parts.forEach(({ link, item }, i) => {
      const holds = item.contains(now ?? null);
      link.classList.toggle("active", holds);
      link.classList.toggle("near", i >= first && i < first + NEAR);
      item.classList.toggle("active", holds);
    });
    if (now && !nav?.querySelector(":focus-visible")) bringIntoSight(now, column);
  }
  // Within the column alone: what would scroll the page, too, is no help to who reads it.
  function bringIntoSight(link, scrolled) {
    const [box, room] = [link, scrolled].map((one) => one.getBoundingClientRect());
    if (box.top < room.top || box.bottom > room.bottom) {
      scrolled.scrollTop += box.top - room.top - room.height / 2;
    }
  }

  // Who comes by an address has chosen as well.
  const choose = () => { chosen = parts.find(({ link }) => link.hash === location.hash)?.link; };
  choose();
  addEventListener("hashchange", choose);
  nav.addEventListener("click", ({ target }) => {
    chosen = parts.find(({ link }) => target instanceof Node && link.contains(target))?.link;
    ask();
  });
  for (const kind of ["wheel", "touchmove", "keydown"]) {
    addEventListener(kind, () => { chosen = undefined; }, { passive: true });
  }
  // Where the contents scroll, an entry that has the focus is in sight.
  nav.addEventListener("focusin", ({ target }) => bringIntoSight(target, column));
  function ask() {
    if (!asked) requestAnimationFrame(mark);
    asked = true;
  }
  for (const kind of ["scroll", "resize", "load"]) addEventListener(kind, ask, { passive: true });
  ask();
});

// The theme brings the page one is on into the sight of the book's contents; the first entry that is seen of
// them is whole.
addEventListener("load", () => {
  const sidebar = document.getElementById("pst-primary-sidebar");
  const search = sidebar?.querySelector(".sidebar-primary-item:nth-child(2)");
  if (!sidebar || !search || !sidebar.scrollTop) return;
  const { bottom } = search.getBoundingClientRect();
  const boxes = [...sidebar.querySelectorAll(".bd-links :is(a, p.caption)")].map((one) => one.getBoundingClientRect());
  const cut = boxes.find((box) => box.top < bottom && box.bottom > bottom);
  if (cut) sidebar.scrollTop -= Math.ceil(bottom - cut.top);
});
