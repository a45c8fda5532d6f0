"""Image blocks of messages, checked before they are sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenthost.client import images
from agenthost.client.agents import Agent
from agenthost.client.errors import UsageError


def agent(*can: str) -> Agent:
    return Agent("painter", "1.0.0", "", "", {}, {}, frozenset(can))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0...", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_the_media_type_comes_from_the_content_not_the_name(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(data)
    assert images.block(agent("image.data"), str(path))["url"].startswith(f"data:{kind};base64,")


def test_a_file_that_is_no_image_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.png").write_bytes(b"RIFF....WAVE")
    with pytest.raises(UsageError, match="is not a PNG, JPEG, GIF or WebP image"):
        images.block(agent("image.data"), str(tmp_path / "x.png"))
    monkeypatch.setattr(images, "MOST_BYTES", 8)
    with pytest.raises(UsageError, match="has 12 bytes; the limit for an image is 8"):
        images.block(agent("image.data"), str(tmp_path / "x.png"))
    with pytest.raises(UsageError, match="There is no file"):
        images.block(agent("image.data"), str(tmp_path))


def test_images_of_one_message_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_BYTES", 25)
    one = {"type": "image", "url": "data:image/png;base64,AAAA"}
    images.check_total_size([one, {"type": "image", "url": "https://a.example/" + "x" * 100}])
    with pytest.raises(UsageError, match="Use several messages"):
        images.check_total_size([one, one])


@pytest.mark.parametrize(
    ("can", "reference", "words"),
    [
        ((), "boat.png", r"painter does not accept images from files\.$"),
        (("image.http",), "boat.png", "does not accept images from files. Use an https:// URL."),
        (("image.data",), "https://a.example/b.png", "does not accept images by URL. Save the image and use the file."),
        (("image.http",), "data:image/png;base64,AAAA", "does not accept images as data"),
        (("image.http", "image.data"), "http://a.example/b.png", "a local file or an https:// URL"),
        (("image.http", "image.data"), "file:///etc/passwd", "a local file or an https:// URL"),
        (("image.http",), "https://", "is not a valid URL"),
    ],
)
def test_unsupported_images_are_refused_with_the_alternative(can: tuple[str, ...], reference: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        images.block(agent(*can), reference)


def test_addresses_and_data_are_passed_on() -> None:
    for reference in ("https://a.example/b.png", "data:image/png;base64,AAAA"):
        assert images.block(agent("image.http", "image.data"), reference) == {"type": "image", "url": reference}
