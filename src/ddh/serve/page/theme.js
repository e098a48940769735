// The chosen theme, set before the first paint; without a choice the system's own holds.
(() => {
  const chosen = localStorage.getItem("ddh-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
