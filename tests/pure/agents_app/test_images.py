"""Images: whole ones of the four formats are taken, anything else is refused with the reason."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Iterator

import pytest

from agents_app import images
from agents_app.images import BadImage, Image
from tests.fakes import pictures
from tests.fakes.pictures import data_url, gif, jpeg, jpeg_segment, png, png_chunk, riff, webp

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"
WHOLE = {PNG: png(), JPEG: jpeg(), GIF: gif(), WEBP: webp()}


@pytest.fixture(autouse=True)
def _usual_limit() -> Iterator[None]:
    yield
    images.set_most_bytes(5 * 1024 * 1024)


def refusal(picture: bytes, media_type: str) -> str:
    with pytest.raises(BadImage) as caught:
        images.read(data_url(picture, media_type))
    return caught.value.reason


@pytest.mark.parametrize(
    ("media_type", "picture", "size"),
    [
        (PNG, png(), (1, 1)),
        (PNG, png(30, 7), (30, 7)),
        (PNG, png(header=b"\x01\x00\x00\x00\x01"), (1, 1)),
        (PNG, png() + b"what follows the end is nobody's", (1, 1)),
        (PNG, png()[:33] + png_chunk(b"tEXt", b"Title\0x") + png()[33:], (1, 1)),
        # Wrong checksums.
        (PNG, png()[:33] + png_chunk(b"tEXt", b"Title\0x")[:-1] + b"?" + png()[33:], (1, 1)),
        (PNG, png()[:45] + bytes([png()[45] ^ 1]) + png()[46:], (1, 1)),
        # Nothing but the sign of a format.
        (PNG, png()[:8], (0, 0)),
        (JPEG, jpeg()[:3], (0, 0)),
        (GIF, gif()[:6], (0, 0)),
        (WEBP, webp()[:12], (0, 0)),
        (PNG, png(8_000, 5_000), (8_000, 5_000)),
        (JPEG, jpeg(), (1, 1)),
        (JPEG, jpeg(640, 480), (640, 480)),
        (JPEG, jpeg(frame=0xC2), (1, 1)),
        (JPEG, jpeg()[:2] + b"\xff\xff\xff" + jpeg()[2:], (1, 1)),
        (JPEG, jpeg()[:-3] + b"\xff\x00\xff\xd0\x3f\xff\xd9", (1, 1)),
        (JPEG, jpeg() + jpeg(), (1, 1)),
        # A preview inside has an end of its own.
        (JPEG, jpeg()[:2] + jpeg_segment(0xE1, b"Exif\0\0" + jpeg(9, 9)) + jpeg()[2:], (1, 1)),
        (GIF, gif(), (1, 1)),
        (GIF, gif(3, 4, version=b"GIF87a"), (3, 4)),
        (GIF, gif(frames=5), (1, 1)),
        (GIF, gif()[:6] + b"\0\0\0\0" + gif()[10:], (1, 1)),
        (WEBP, webp(), (1, 1)),
        (WEBP, webp(20, 10), (20, 10)),
        (WEBP, riff(pictures.webp_lossy(5, 6)), (5, 6)),
        (WEBP, riff(pictures.webp_canvas(40, 30), pictures.webp_chunk(b"ICCP", b"abc"), pictures.webp_lossy(40, 30)), (40, 30)),
        (WEBP, riff(pictures.webp_canvas(40, 30), pictures.webp_frame(pictures.webp_lossless())), (40, 30)),
    ],
)
def test_a_whole_picture_is_taken_with_its_size(media_type: str, picture: bytes, size: tuple[int, int]) -> None:
    assert images.read(data_url(picture, media_type)) == Image(media_type, picture, *size)


SIGN = {PNG: (8, 8), JPEG: (3, 4), GIF: (6, 6), WEBP: (12, 12)}
"""How many bytes, from and to, are the sign of the format alone."""


@pytest.mark.parametrize("media_type", WHOLE)
def test_a_picture_cut_anywhere_is_refused(media_type: str) -> None:
    whole = WHOLE[media_type]
    for length in (*range(1, SIGN[media_type][0]), *range(SIGN[media_type][1] + 1, len(whole))):
        assert refusal(whole[:length], media_type).startswith("the image is broken"), length


@pytest.mark.parametrize(
    ("media_type", "picture", "reason"),
    [
        (PNG, b"\0", "does not begin like a PNG"),
        (PNG, b"\x89PNG\r\n\x1a\n" + bytes(40), "header is missing"),
        (PNG, b"\x89PNG\n\x1a\n" + png()[8:], "does not begin"),
        (PNG, png()[:8] + png()[33:], "header is missing"),
        (PNG, png()[:33] + png()[8:], "in the wrong place"),
        (PNG, png(header=b"\x03\x02\x00\x00\x00"), "header has invalid values"),
        (PNG, png(header=b"\x08\x07\x00\x00\x00"), "header has invalid values"),
        (PNG, png(header=b"\x08\x02\x01\x00\x00"), "header has invalid values"),
        (PNG, png(header=b"\x08\x03\x00\x00\x00"), "no palette"),
        (PNG, png(0, 1), "no width"),
        (PNG, png()[:33] + png_chunk(b"IEND", b""), "no pixels"),
        (PNG, png()[:33] + b"\xff\xff\xff\xffIDAT" + bytes(20), "too early"),
        (JPEG, jpeg(0, 5), "no width"),
        (JPEG, jpeg(5, 0), "no width"),
        (JPEG, jpeg()[:4] + b"\0\1" + jpeg()[6:], "impossible length"),
        (JPEG, jpeg()[:2] + b"\xff\xe0\xff\xff" + bytes(9), "too early"),
        (JPEG, jpeg()[:2] + b"\0" + jpeg()[2:], "does not begin"),
        (JPEG, jpeg()[:20] + b"\0" + jpeg()[20:], "marker is missing"),
        (JPEG, jpeg().replace(b"\xff\xc0", b"\xff\xe7"), "no header before"),
        (JPEG, jpeg().replace(b"\x08\x00\x01\x00\x01\x01", b"\x08\x00\x01\x00\x01\x02"), "header has invalid values"),
        (JPEG, jpeg()[:-3] + b"\xff\xd9", "no pixels"),
        (GIF, gif(frames=0), "no pixels"),
        (GIF, gif().replace(b"\x2c", b"\x2d", 1), "unknown type"),
        (GIF, gif()[:-6] + b"\x0c" + gif()[-5:], "unknown code size"),
        (GIF, gif(0, 0), "no pixels"),
        (WEBP, riff(pictures.webp_canvas(4, 4)), "no pixels"),
        (WEBP, webp()[:8] + b"WAVE" + webp()[12:], "does not begin"),
        (WEBP, riff(pictures.webp_chunk(b"VP8L", b"\x2e" + bytes(9))), "header has invalid values"),
        (WEBP, riff(pictures.webp_chunk(b"VP8 ", bytes(20))), "header has invalid values"),
        (WEBP, riff(pictures.webp_lossy()[:4] + struct.pack("<I", 14) + pictures.webp_lossy()[8:22]), "too early"),
        (WEBP, riff(pictures.webp_chunk(b"VP8X", b"")), "too early"),
        (WEBP, webp()[:16] + b"\xff\xff\xff\x00" + webp()[20:], "too early"),
    ],
)
def test_a_broken_picture_is_refused_with_what_is_wrong(media_type: str, picture: bytes, reason: str) -> None:
    said = refusal(picture, media_type)
    assert said.startswith("the image is broken")
    assert reason in said


@pytest.mark.parametrize("media_type", WHOLE)
def test_noise_in_a_picture_never_gives_anything_but_a_picture_or_a_reason(media_type: str) -> None:
    whole, chance = WHOLE[media_type], random.Random(media_type)
    for _ in range(3_000):
        noisy = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            noisy[chance.randrange(len(noisy))] = chance.randrange(256)
        assert _taken_or_refused(media_type, bytes(noisy))


def _taken_or_refused(media_type: str, picture: bytes) -> bool:
    try:
        return 0 < images.check(media_type, picture).width <= images.MAX_SIDE
    except BadImage as error:
        return error.reason.startswith("the image ")


def test_a_picture_of_another_format_than_it_says_is_refused_with_both_names() -> None:
    for declared in WHOLE:
        for real, picture in WHOLE.items():
            if declared != real:
                assert refusal(picture, declared) == f"the image says that it is {declared}, but it is {real}"


@pytest.mark.parametrize(
    ("name", "picture"),
    [
        ("image/jpg", jpeg()),
        ("image/JPEG", jpeg()),
        ("image/png;name=a.png", png()),
    ],
)
def test_other_spellings_of_the_four_types_are_taken(name: str, picture: bytes) -> None:
    assert images.read(data_url(picture, name)).media_type == images.media_type(name.partition(";")[0])


@pytest.mark.parametrize("name", ["image/svg+xml", "image/heic", "image/avif", "image/bmp", "image/tiff", "image/x-icon"])
def test_a_type_that_not_every_vendor_takes_is_refused(name: str) -> None:
    assert refusal(png(), name) == "an image must be PNG, JPEG, GIF or WebP"


@pytest.mark.parametrize(
    "url", ["", "https://x.test/a.png", "data:image/png,abc", "data:text/html;base64,YWJj", "DATA:image/png;base64,AAAA"]
)
def test_what_is_no_data_address_is_refused(url: str) -> None:
    with pytest.raises(BadImage, match="must be written as"):
        images.read(url)


@pytest.mark.parametrize("text", ["", "a", "abc", "%%%%", "äöü", "AAAA\n", "AA-_", "A===", "AA==A"])
def test_broken_base64_is_refused(text: str) -> None:
    with pytest.raises(BadImage, match="base64 is broken"):
        images.read(f"data:image/png;base64,{text}")


def test_a_picture_is_taken_up_to_the_limit_of_bytes_and_not_beyond() -> None:
    images.set_most_bytes(2_000)
    fitting = png() + bytes(2_000 - len(png()))
    assert images.read(data_url(fitting, PNG)).data == fitting
    for extra in (1, 2, 3, 5_000):
        assert refusal(fitting + bytes(extra), PNG) == "the image is larger than 2000 bytes"
    # Told by its length, before anything of it is decoded.
    with pytest.raises(BadImage, match="larger than"):
        images.read("data:image/png;base64," + "%" * 20_000)


@pytest.mark.parametrize(("width", "height"), [(8_001, 1), (1, 8_001), (8_000, 5_001), (6_400, 6_400), (2**31, 2**31)])
def test_a_picture_of_too_many_pixels_is_refused_by_its_header(width: int, height: int) -> None:
    assert f"{width} x {height} pixels" in refusal(png(width, height), PNG)


def test_every_frame_and_canvas_counts_for_the_size() -> None:
    assert "9000 x 2" in refusal(riff(pictures.webp_canvas(9_000, 2), pictures.webp_lossless()), WEBP)
    wide = bytearray(gif())
    at = wide.index(b"\x2c")
    wide[at + 5 : at + 7] = struct.pack("<H", 9_000)
    assert "9000 x 1" in refusal(bytes(wide), GIF)


@pytest.mark.parametrize(
    ("media_type", "picture"),
    [
        # Each as large as may be, and made of nothing but beginnings.
        (PNG, png()[:33] + png_chunk(b"tEXt", b"") * 436_000),
        (GIF, gif()[:-1] + b"\x21\xfe" + b"\x01x" * 2_600_000),
        (GIF, gif()[:-1] + b"\x21\xfe\x00" * 1_700_000),
        (JPEG, jpeg()[:-2] + b"\xff" * 5_200_000),
        (JPEG, jpeg()[:-2] + b"\xff\xda\x00\x02" * 1_300_000),
        (JPEG, jpeg()[:2] + b"\xff" * 5_200_000),
        (WEBP, riff(pictures.webp_chunk(b"JUNK", b"") * 650_000)),
    ],
    ids=["chunks", "pieces", "blocks", "filling", "scans", "filling first", "riff"],
)
@pytest.mark.timeout(120)
def test_a_picture_made_to_take_long_is_refused_soon(media_type: str, picture: bytes) -> None:
    assert len(base64.b64encode(picture)) < 7_100_000
    assert refusal(picture, media_type).startswith("the image is broken")
