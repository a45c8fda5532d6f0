"""Pictures that a person pastes into the playground or drops on it."""

from __future__ import annotations

import json

from tests.e2e.playground.person import Person
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

# A picture that the browser draws, as a file, and files that are none.
FILES = """
const drawn = document.createElement('canvas');
drawn.width = drawn.height = 4;
const png = await new Promise((done) => drawn.toBlob(done));
const files = {
  picture: new File([png], 'lamp.png', {type: 'image/png'}),
  text: new File(['Hello.'], 'notes.txt', {type: 'text/plain'}),
  broken: new File(['Hello.'], 'broken.png', {type: 'image/png'}),
};
"""


def give(person: Person, kind: str, where: str, *names: str) -> bool:
    """Paste or drop files on an element; whether the page takes them, else the browser leaves the page to show the file."""
    event, of = ("ClipboardEvent", "clipboardData") if kind == "paste" else ("DragEvent", "dataTransfer")
    given = f"""(async () => {{
      {FILES}
      const data = new DataTransfer();
      for (const name of {json.dumps(names)}) data.items.add(files[name]);
      const event = new {event}({kind!r}, {{{of}: data, bubbles: true, cancelable: true}});
      return !document.querySelector({where!r}).dispatchEvent(event);
    }})()"""
    return bool(person.page.run(given))


def test_pictures_are_taken_wherever_they_are_dropped_and_others_are_named(person: Person, model: ModelServer) -> None:
    person.open()
    count = "document.querySelectorAll('#pictures img').length"
    assert give(person, "paste", "#message", "picture")
    person.page.wait_for(f"{count} === 1")
    assert give(person, "drop", "#options", "text", "broken")
    person.sees("notes.txt is no PNG, JPEG, GIF or WebP. broken.png is broken: your browser cannot show it.", "#problem")
    assert person.page.run(count) == 1
    # The conversation has most of the page's room.
    assert give(person, "drop", "#entries", "picture")
    person.page.wait_for(f"{count} === 2 && !document.querySelector('#problem').innerText")
    prompt = model.script([steps.text("Two lamps.")])
    person.say(prompt)
    person.sees("Two lamps.")
    content = model.wait_request(prompt).body["messages"][-1]["content"]
    assert [block["type"] for block in content] == ["text", "image_url", "image_url"]
