// Makes elements, and brings a page up to date without throwing away what is there.
//
// Whatever clients have named becomes a text node or the value of an attribute, never markup: there is
// no way here to make an element of a text. What could not be seen, or would turn the text around it, is
// written out.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "rect", "line", "text", "title", "path", "circle"]);

/** An element. `attributes` with a function are listeners; null and false leave an attribute out. */
export function h(tag, attributes, ...children) {
  const drawn = DRAWN.has(tag) || tag.startsWith("svg:");
  const name = tag.replace("svg:", "");
  const made = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  made.listeners = {};
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") made.listeners[key] = value;
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(key, value === true ? "" : String(value));
  }
  listen(made);
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== false)
      parent.append(document.createTextNode(visible(String(child))));
  }
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** The text with characters that cannot be seen as their numbers, but for the ends of lines. */
export function visible(text) {
  return text.replace(UNSEEN, (char) => (char === "\n" ? char : `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`));
}

function listen(element) {
  element.heard ??= new Set();
  for (const kind of Object.keys(element.listeners)) {
    if (element.heard.has(kind)) continue;
    element.heard.add(kind);
    // Asks what is listening now: it may be replaced together with what is shown.
    element.addEventListener(kind, (event) => element.listeners[kind]?.(event));
  }
}

/** Make the children of `parent` look like `wanted`; what stays keeps focus, selection and scroll. */
export function update(parent, wanted) {
  const made = document.createDocumentFragment();
  append(made, wanted);
  match(parent, made);
}

function match(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = child.getAttribute?.("data-key");
    if (key) keyed.set(key, child);
  }
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = child.getAttribute?.("data-key");
    let found = key ? keyed.get(key) : place;
    if (found && (!alike(found, child) || (!key && found.getAttribute?.("data-key")))) found = null;
    if (!found) {
      old.insertBefore(child, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    if (key) keyed.delete(key);
    if (found.nodeType === Node.TEXT_NODE) {
      if (found.data !== child.data) found.data = child.data;
    } else {
      takeOver(found, child);
      match(found, child);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function takeOver(old, fresh) {
  for (const { name, value } of [...fresh.attributes])
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    // What the reader has unfolded stays so.
    const isReaders = name === "open" && old.nodeName === "DETAILS";
    if (!fresh.hasAttribute(name) && !isReaders) old.removeAttribute(name);
  }
  old.listeners = fresh.listeners ?? {};
  listen(old);
  // What somebody is typing into is theirs.
  if ("value" in fresh && fresh.hasAttribute("value") && old !== document.activeElement)
    old.value = fresh.getAttribute("value");
}
