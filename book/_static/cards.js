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
  // How far from a link its sentence ends, which the card leaves free: below it, or above.
  function beyond(link, placement) {
    const block = link.closest("p, li, td, dd") ?? link;
    const texts = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    const sentence = document.createRange();
    sentence.selectNodeContents(block);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (link.contains(text)) continue;
      const ends = [...(text.textContent ?? "").matchAll(/[.?!](?=\s)/g)].map(({ index }) => index + 1);
      if (!ends.length) continue;
      if (text.compareDocumentPosition(link) & Node.DOCUMENT_POSITION_FOLLOWING) {
        sentence.setStart(text, ends[ends.length - 1]);
      } else {
        sentence.setEnd(text, ends[0]);
        break;
      }
    }
    const [all, own] = [sentence, link].map((one) => one.getBoundingClientRect());
    return Math.max(0, placement.startsWith("top") ? own.top - all.top : all.bottom - own.bottom);
  }
  function popover(link) {
    return bootstrap.Popover.getOrCreateInstance(link, {
      animation: false,
      container: "body",
      content: () => cards.get(link.getAttribute("href"))?.content.cloneNode(true),
      html: true,
      // On a phone the card lies at that edge of the screen which is further from its link.
      placement: () => (isNarrow.matches && link.getBoundingClientRect().top > innerHeight / 2 ? "top" : "bottom"),
      template: '<div class="hover-card" role="tooltip"><div class="popover-body"></div></div>',
      trigger: "manual",
      popperConfig: usual => ({
        ...usual,
        modifiers: [
          ...usual.modifiers,
          { name: "preventOverflow", options: { padding: 8 } },
          { name: "offset", options: { offset: ({ placement }) => [0, isNarrow.matches ? 0 : beyond(link, placement)] } },
        ],
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
