"use strict";

// A link to a term or a paper shows its entry on a card: by mouse, by keyboard, by a first tap.
// The card stays while the pointer is on it or on its link, and Escape closes it.
document.addEventListener("DOMContentLoaded", () => {
  const OPEN_AFTER = 250, CLOSE_AFTER = 300; // milliseconds: time to pass by, time to reach the card
  /** @type {Map<string | null, HTMLTemplateElement>} */
  const cards = new Map();
  for (const card of document.querySelectorAll("template")) cards.set(card.dataset.card ?? "", card);
  /** @type {HTMLAnchorElement | null} */
  let shown = null, aimed = null;
  let timer = 0, byTouch = false;
  const isNarrow = matchMedia("(max-width: 599px)");

  const inCard = at => at.closest(".hover-card") !== null;
  function linkAt(at) {
    const link = inCard(at) ? null : at.closest("article a");
    return cards.has(link?.getAttribute("href")) ? link : null;
  }
  function popover(link) {
    return bootstrap.Popover.getOrCreateInstance(link, {
      animation: false,
      container: "body",
      content: () => cards.get(link.getAttribute("href"))?.content.cloneNode(true),
      html: true,
      // On a phone the card lies at that edge of the screen which is further from its link.
      placement: () => (isNarrow.matches && link.getBoundingClientRect().top < innerHeight / 2 ? "bottom" : "top"),
      template: '<div class="hover-card" role="tooltip"><div class="popover-body"></div></div>',
      trigger: "manual",
      popperConfig: usual => ({
        ...usual,
        modifiers: [...usual.modifiers, { name: "preventOverflow", options: { padding: 8 } }],
      }),
    });
  }
  function show(link) {
    clearTimeout(timer);
    aimed = link;
    if (link === shown) return;
    if (shown) popover(shown).hide();
    shown = link;
    if (link) popover(link).show();
  }
  function aim(link) {
    if (link === aimed) return;
    clearTimeout(timer);
    aimed = link;
    timer = setTimeout(show, link ? OPEN_AFTER : CLOSE_AFTER, link);
  }

  document.addEventListener("pointerover", ({ pointerType, target }) => {
    if (pointerType === "touch") return;
    const stays = inCard(target) || shown?.matches(":focus-visible");
    aim(linkAt(target) ?? (stays ? shown : null));
  });
  document.addEventListener("focusin", ({ target }) => {
    const link = linkAt(target);
    if (!byTouch && link?.matches(":focus-visible")) show(link);
  });
  document.addEventListener("focusout", ({ target, relatedTarget }) => {
    if (target === shown && relatedTarget && !inCard(relatedTarget)) show(null);
  });
  document.addEventListener("pointerdown", ({ pointerType, target }) => {
    byTouch = pointerType === "touch";
    if (!inCard(target) && linkAt(target) !== shown) show(null);
  });
  document.addEventListener("click", event => {
    const link = linkAt(event.target);
    if (!byTouch || !link || link === shown) return;
    event.preventDefault();
    show(link);
  });
  addEventListener("scroll", () => {
    const { bottom = 0, top = 0 } = shown?.getBoundingClientRect() ?? {};
    if (shown && isNarrow.matches && (bottom < 0 || top > innerHeight)) show(null);
  }, { passive: true });
  document.addEventListener("keydown", ({ key }) => {
    byTouch = false;
    if (key === "Escape") show(null);
  });
});
