// Pictures that a message will have: chosen, pasted, dropped, or given by their address.

import { make, picture, replace, shortened } from "./dom.js";

const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST = 5 * 1024 * 1024;
const MOST = 8;
const FULL = `A message has at most ${MOST} pictures here.`;

export class Pictures {
  #list;
  #failed;
  #hasFailed = false;
  #urls = [];

  // `page` takes what is dropped: beside an element that does, a browser leaves the page to show the file.
  constructor({ list, field, composer, page, failed }) {
    this.#list = list;
    this.#failed = failed;
    field.addEventListener("change", () => {
      this.#take(field.files);
      field.value = "";
    });
    composer.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) {
        event.preventDefault();
        this.#take(event.clipboardData.files);
      }
    });
    page.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    page.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.#take(event.dataTransfer.files);
    });
  }

  allow({ data = false, http = false } = {}) {
    this.data = data;
    this.http = http;
  }

  get blocks() {
    return this.#urls.map((url) => ({ type: "image", url }));
  }

  clear() {
    this.#urls = [];
    this.#show();
  }

  restore(blocks) {
    this.#urls = blocks.map((block) => block.url);
    this.#show();
  }

  addAddress(text) {
    if (!this.http) this.#report("This agent takes no addresses of pictures.");
    else if (!/^https:\/\/\S+$/.test(text)) this.#report("The address of a picture begins with https://.");
    else this.#report(this.#add(text) ? "" : FULL);
  }

  async #take(files) {
    const faults = [];
    for (const file of this.data ? files : []) {
      const name = shortened(file.name, 80);
      if (!TYPES.includes(file.type)) faults.push(`${name} is no PNG, JPEG, GIF or WebP.`);
      else if (file.size > LARGEST) faults.push(`${name} has ${(file.size / 1048576).toFixed(1)} MiB; at most 5 MiB are usual.`);
      else if (!(await isPicture(file))) faults.push(`${name} is broken: your browser cannot show it.`);
      else if (!this.#add(await read(file))) {
        faults.push(FULL);
        break;
      }
    }
    this.#report(this.data ? faults.join(" ") : "This agent takes no pictures.");
  }

  // Show what is wrong, or take back what was wrong before.
  #report(fault) {
    if (fault || this.#hasFailed) this.#failed(fault || null);
    this.#hasFailed = Boolean(fault);
  }

  #add(url) {
    if (this.#urls.length >= MOST) return false;
    this.#urls.push(url);
    this.#show();
    return true;
  }

  #show() {
    replace(
      this.#list,
      this.#urls.map((url, place) =>
        make(
          "li",
          {},
          picture(url),
          make("button", { type: "button", class: "button quiet small", onclick: () => (this.#urls.splice(place, 1), this.#show()) }, "Remove", make("span", { class: "hidden" }, ` picture ${place + 1}`)),
        ),
      ),
    );
  }
}

async function isPicture(file) {
  const shown = await createImageBitmap(file).catch(() => null);
  shown?.close();
  return shown !== null;
}

function read(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}
