// Elements, short. Text is always set as text: what the service or a kernel says is never taken for HTML.
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...inside: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...inside);
  return made;
}

export function button(words: string, act: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button', class: 'berth-button' }, words);
  made.addEventListener('click', act);
  return made;
}

/** Set the text where it is another one: a screen reader hears what changed alone. */
export function setText(node: HTMLElement, words: string): void {
  if (node.textContent !== words) {
    node.textContent = words;
  }
}

/** A table whose rows have their name as a header. */
export function facts(rows: [string, string][]): HTMLTableElement {
  const body = element('tbody');
  for (const [name, value] of rows) {
    body.append(element('tr', {}, element('th', { scope: 'row' }, name), element('td', {}, value)));
  }
  return element('table', {}, body);
}

/** A table with a header for each column. */
export function table(caption: string, columns: string[], rows: string[][]): HTMLTableElement {
  const head = element('tr', {}, ...columns.map(name => element('th', { scope: 'col' }, name)));
  const body = element('tbody', {}, ...rows.map(row => element('tr', {}, ...row.map(cell => element('td', {}, cell)))));
  return element('table', { 'aria-label': caption }, element('thead', {}, head), body);
}
