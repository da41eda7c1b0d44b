"use strict";
// A reader's choice of language: kept in a cookie that Hub and pages read, then the page is asked for anew. A plain
// cookie of this site, set by its own page: no form goes anywhere, so nobody else can send one.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-berth-language]");
  if (!button) return;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  const path = button.parentElement.dataset.path;
  document.cookie = `berth-language=${button.dataset.berthLanguage}; Path=${path}; Max-Age=31536000; SameSite=Lax${secure}`;
  location.replace(location.pathname + location.search); // a page that answered a form is looked at, not sent again
});
