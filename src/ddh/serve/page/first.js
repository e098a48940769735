// Before the first paint: the chosen theme (without a choice the system's own holds), and the answers
// that the page needs first, asked for while its modules are still on their way.
(() => {
  const chosen = localStorage.getItem("ddh-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  const paths = ["health", ...(/^(#\/?(search)?)?$/.test(location.hash) ? ["items?limit=48"] : [])];
  window.asked = new Map(paths.map((path) => [path, fetch(path)]));
  for (const answer of window.asked.values()) answer.catch(() => {}); // whoever takes it sees the error
})();
