"use strict";
// The menu on a narrow screen, charges that run on at their known rate, and pages that stay open for long. Pages work
// without it.
// Back to a page that the browser kept: it is asked for anew.
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("berth-menu");
  const menu = document.getElementById("thenavbar");
  button.addEventListener("click", () => {
    const open = menu.classList.toggle("show");
    button.setAttribute("aria-expanded", String(open));
  });

  // What the page says was so when it came. Charges run on at their rate for a while; then they stop and it is said.
  const OLD = 10 * 60 * 1000;
  const begun = Date.now();
  const age = () => Date.now() - begun;
  const asof = document.getElementById("berth-asof");
  const running = Array.from(document.querySelectorAll("[data-per-hour]"));
  const show = () => {
    if (age() > OLD) {
      clearInterval(timer);
      if (asof) asof.textContent = asof.dataset.old;
      if (asof) asof.classList.add("berth-old");
      return;
    }
    for (const node of running) {
      const micro = Number(node.dataset.charged) + (Number(node.dataset.perHour) * age()) / 3600000;
      node.textContent = (micro / 1e6).toFixed(4);
    }
  };
  const timer = setInterval(show, 1000);

  // Looked at again after a while it is asked for anew, unless somebody has begun to fill in a form.
  const touched = () => Array.from(document.querySelectorAll("input:not([type=hidden])")).some((each) => each.value !== each.defaultValue);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && age() > OLD && !touched()) location.reload();
  });
});
