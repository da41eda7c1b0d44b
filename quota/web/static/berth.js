"use strict";
// The menu on a narrow screen, and charges that run on at their known rate. Pages work without it.
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

  const running = Array.from(document.querySelectorAll("[data-per-hour]"));
  const begun = performance.now();
  const show = () => {
    const hours = (performance.now() - begun) / 3600000;
    for (const node of running) {
      const micro = Number(node.dataset.charged) + Number(node.dataset.perHour) * hours;
      node.textContent = (micro / 1e6).toFixed(4);
    }
  };
  if (running.length) setInterval(show, 1000);
});
