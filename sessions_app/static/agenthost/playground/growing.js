// A text that grows, as Markdown.

import { replace } from "./dom.js";
import { markdown } from "./markdown.js";

export class GrowingText {
  #next = 0;
  #later = null;
  #around;

  // `around(change)` makes a change of the element that comes later than the call of `show`.
  constructor(element, around = (change) => change()) {
    this.element = element;
    this.#around = around;
  }

  // Show the text as it is now. A long one takes long to lay out, so it is not shown at each delta.
  show(text) {
    clearTimeout(this.#later);
    const began = performance.now();
    if (began < this.#next) {
      this.#later = setTimeout(() => this.#around(() => this.#lay(text)), this.#next - began);
      return;
    }
    this.#lay(text);
  }

  #lay(text) {
    const began = performance.now();
    replace(this.element, markdown(text));
    this.#next = began + (performance.now() - began) * 6;
  }
}
