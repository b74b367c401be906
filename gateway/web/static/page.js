"use strict";
// Keyboard, copying, and marked lines. Every page works without this file.
(() => {
  const typing = (element) => /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
  const items = () => [...document.querySelectorAll(".results article, .list tbody tr:has(a.open), .letters li:has(a.open)")];
  const current = () => items().find((item) => item.contains(document.activeElement));
  let leader = 0;

  function move(step) {
    const all = items();
    const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(current()) + step))];
    const target = next?.matches("article") ? next : next?.querySelector("a.open");
    target?.focus();
    target?.scrollIntoView({ block: "nearest" });
  }

  async function copy(button) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  }

  const actions = {
    "/": () => { const field = document.getElementById("q"); field?.focus(); field?.select(); },
    "?": () => { const keys = document.getElementById("keys"); if (keys) { keys.open = !keys.open; keys.querySelector("summary").focus(); } },
    j: () => move(1),
    k: () => move(-1),
    e: () => { const why = current()?.querySelector("details.why"); if (why) why.open = !why.open; },
    y: () => { const button = current()?.querySelector("[data-copy]"); if (button) copy(button); },
    g: () => { leader = Date.now(); },
    Escape: () => { if (document.activeElement !== document.body) document.activeElement.blur(); else history.back(); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (typing(event.target)) {
      if (event.key === "Escape") {
        event.preventDefault(); // a search field would be cleared
        event.target.blur();
      }
      return;
    }
    if (Date.now() - leader < 1500) {
      leader = 0;
      const screen = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (screen) { event.preventDefault(); screen.click(); return; }
    }
    if (event.key === "Enter" && document.activeElement.matches(".results article")) {
      event.preventDefault();
      document.activeElement.querySelector("a.open").click();
    } else if (Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit-on-change]")) event.target.form.requestSubmit();
  });

  // a question that was just sent is not sent again by a delayed event of typing, nor when its field loses the focus
  let asked = "";
  document.addEventListener("htmx:config:request", (event) => {
    if (event.target.id !== "ask") return;
    const question = new URLSearchParams(new FormData(event.target)).toString();
    if (event.detail.ctx.sourceEvent?.type !== "submit" && question === asked) event.preventDefault();
    asked = question;
  });

  function mark() {
    const match = /^#L([0-9]+)(?:-L?([0-9]+))?$/.exec(location.hash);
    if (!match) return;
    const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (match[2] || !document.querySelector(".row.marked")) {
      document.querySelectorAll(".row").forEach((row) => {
        const number = Number(row.id.slice(1));
        row.classList.toggle("marked", number >= first && number <= last);
      });
    }
    document.getElementById(`L${first}`)?.scrollIntoView({ block: "center" });
  }

  function prepare() {
    document.querySelectorAll("[data-copy][hidden]").forEach((button) => { button.hidden = false; });
    document.querySelectorAll(".without-script").forEach((element) => { element.hidden = true; });
  }

  prepare();
  mark();
  addEventListener("hashchange", mark);
  document.addEventListener("htmx:after:swap", prepare);
  document.querySelector("form[data-submit-at-once]")?.requestSubmit();
})();
