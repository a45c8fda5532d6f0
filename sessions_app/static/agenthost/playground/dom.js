// Elements of the page. What agents and users write becomes text nodes only: nothing here parses HTML.

// Make an element. Attributes that are null or false are left out; `on…` are listeners; children are nodes or texts.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A link to a page elsewhere; plain text if its address is none that may be opened.
export function link(address, ...children) {
  const target = webAddress(address);
  if (target === null) return make("span", {}, ...children);
  return make("a", { href: target, rel: "noopener noreferrer nofollow", target: "_blank", referrerpolicy: "no-referrer" }, ...children);
}

function webAddress(address) {
  try {
    const parsed = new URL(address);
    return ["http:", "https:", "mailto:"].includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

// A picture of a message. Only pictures that the message contains are shown: the page loads nothing from elsewhere.
export function picture(address) {
  if (PICTURE.test(address)) return make("img", { src: address, alt: "Picture of this message", class: "picture" });
  return make("span", { class: "note" }, "Picture, not loaded: ", link(address, shortened(address, 200)));
}

export function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

export function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// Make these the children of an element, in this order. One that is in its place is not moved: it would lose the focus.
export function arrange(parent, elements) {
  elements.forEach((element, place) => {
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place] ?? null);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}
