// Draws new answers into the elements of the last one. What is equal stays, with the keyboard's focus and the selected text.

// key names an element among its siblings. It stays the same element if its place changes.
export function key<E extends HTMLElement>(name: string, e: E): E {
  e.dataset["key"] = name;
  return e;
}

// redraw makes the children of an element equal to others, which must not be used afterwards.
export function redraw(box: Element, ...children: (Node | string)[]): void {
  const active = document.activeElement;
  drawChildren(box, children.map((c) => (typeof c === "string" ? document.createTextNode(c) : c)));
  if (active instanceof HTMLElement && active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true }); // it was moved
}

const keyOf = (n: Node): string | undefined => (n instanceof HTMLElement ? n.dataset["key"] : undefined);

// drawChildren finds the old element of each child by its key. Without keys it is the element at the same place, if it has the same name.
function drawChildren(box: Element, children: Node[]): void {
  const wanted = new Set(children.map(keyOf));
  const keyed = new Map<string, Element>();
  for (const e of [...box.children]) {
    const k = keyOf(e);
    if (k === undefined) continue;
    if (wanted.has(k)) keyed.set(k, e);
    else e.remove();
  }
  let at = box.firstChild;
  for (const n of children) {
    const k = keyOf(n);
    const here = at && keyOf(at) === undefined && at.nodeName === n.nodeName ? at : undefined;
    const old = k === undefined ? here : keyed.get(k);
    if (k !== undefined) keyed.delete(k); // another child with the same key is new
    if (!old) {
      box.insertBefore(n, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else box.insertBefore(old, at);
    drawNode(old, n);
  }
  while (at) {
    const rest = at;
    at = at.nextSibling;
    rest.remove();
  }
}

function drawNode(old: Node, n: Node): void {
  if (!(old instanceof HTMLElement && n instanceof HTMLElement)) {
    if (old.nodeValue !== n.nodeValue) old.nodeValue = n.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!n.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of n.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = n.style.cssText; // the page's policy forbids the attribute
    else old.setAttribute(name, value);
  }
  drawChildren(old, [...n.childNodes]);
}
