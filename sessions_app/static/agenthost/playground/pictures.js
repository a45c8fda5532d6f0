// Pictures that a message will have: chosen, pasted, dropped, or given by their address.

import { make, picture, replace, shortened } from "./dom.js";

const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST = 5 * 1024 * 1024;
const MOST = 8;

export class Pictures {
  #list;
  #failed;
  #urls = [];

  constructor({ list, field, composer, failed }) {
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
    composer.addEventListener("dragover", (event) => event.preventDefault());
    composer.addEventListener("drop", (event) => {
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
    if (!this.http) return this.#failed("This agent takes no addresses of pictures.");
    if (!/^https:\/\/\S+$/.test(text)) return this.#failed("The address of a picture begins with https://.");
    this.#add(text);
  }

  async #take(files) {
    if (!this.data) return this.#failed("This agent takes no pictures.");
    for (const file of files) {
      if (!TYPES.includes(file.type)) this.#failed(`${shortened(file.name, 80)} is no PNG, JPEG, GIF or WebP.`);
      else if (file.size > LARGEST) this.#failed(`${shortened(file.name, 80)} has ${(file.size / 1048576).toFixed(1)} MiB; at most 5 MiB are usual.`);
      else this.#add(await read(file));
    }
  }

  #add(url) {
    if (this.#urls.length >= MOST) return this.#failed(`A message has at most ${MOST} pictures here.`);
    this.#urls.push(url);
    this.#show();
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

function read(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}
