// Creates elements, and updates a page without replacing the elements that stay.
//
// Names chosen by clients become text nodes or attribute values, never markup: this module cannot parse
// text as HTML. Invisible characters, and those that change the direction of the surrounding text, are
// shown as escapes.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "rect", "line", "text", "title", "path", "circle"]);

/** Create an element. Attributes with a function are event listeners; null and false omit the attribute. */
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

/** The text with invisible characters, except newlines, as \u escapes. */
export function visible(text) {
  return text.replace(UNSEEN, (char) => (char === "\n" ? char : `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`));
}

function listen(element) {
  element.heard ??= new Set();
  for (const kind of Object.keys(element.listeners)) {
    if (element.heard.has(kind)) continue;
    element.heard.add(kind);
    // Looks the listener up at each event, because `update` may replace it.
    element.addEventListener(kind, (event) => element.listeners[kind]?.(event));
  }
}

/** Make the children of `parent` equal to `wanted`; elements that stay keep focus, selection and scroll position. */
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
    let node = key ? keyed.get(key) : place;
    if (node && (!alike(node, child) || (!key && node.getAttribute?.("data-key")))) node = null;
    if (!node) {
      old.insertBefore(child, place);
      continue;
    }
    if (node === place) place = place.nextSibling;
    else old.insertBefore(node, place);
    if (key) keyed.delete(key);
    if (node.nodeType === Node.TEXT_NODE) {
      if (node.data !== child.data) node.data = child.data;
    } else {
      copyAttributes(node, child);
      match(node, child);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function alike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
}

function copyAttributes(old, fresh) {
  for (const { name, value } of [...fresh.attributes])
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    // An element that the user has expanded stays expanded.
    const isUsers = name === "open" && old.nodeName === "DETAILS";
    if (!fresh.hasAttribute(name) && !isUsers) old.removeAttribute(name);
  }
  old.listeners = fresh.listeners ?? {};
  listen(old);
  // The field that the user is typing into is not overwritten.
  if ("value" in fresh && fresh.hasAttribute("value") && old !== document.activeElement)
    old.value = fresh.getAttribute("value");
}
