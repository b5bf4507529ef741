// Light, dark, or as the system has it.

const names = ["system", "light", "dark"];

export function themes(button) {
  let now = names.indexOf(localStorage.getItem("rootsfs-theme"));
  if (now < 0) now = 0;
  const set = () => {
    const name = names[now];
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.setAttribute("aria-label", "Theme: " + (name === "system" ? "as the system" : name));
    button.title = button.getAttribute("aria-label");
    document.dispatchEvent(new Event("themed"));
  };
  button.addEventListener("click", () => {
    now = (now + 1) % names.length;
    localStorage.setItem("rootsfs-theme", names[now]);
    set();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", set);
  set();
}

const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

// color is what a custom property comes to in the theme of now: a canvas knows no
// properties.
export function color(name, alpha = 1) {
  probe.style.color = `var(${name})`;
  const rgb = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).join(" ");
  return `rgb(${rgb} / ${alpha})`;
}
