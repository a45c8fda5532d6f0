"""From bytes to text, whatever a page says of its encoding."""

from __future__ import annotations

import codecs

import pytest

from agents_app.tools.charset import decoded

WORDS = "Grüße, Öl"


@pytest.mark.parametrize(
    ("data", "content_type", "text"),
    [
        (WORDS.encode(), "text/plain", WORDS),
        (WORDS.encode("cp1252"), "text/plain", WORDS),
        (WORDS.encode("cp1252"), "text/plain; charset=ISO-8859-1", WORDS),
        (b"\x93quoted\x94", "text/plain; charset=latin1", "\u201cquoted\u201d"),
        (WORDS.encode("utf-16"), "text/plain", WORDS),
        (codecs.BOM_UTF16_BE + WORDS.encode("utf-16-be"), "text/plain; charset=utf-8", WORDS),
        (WORDS.encode("utf-16-le"), "text/plain; charset=UTF-16", WORDS),
        (codecs.BOM_UTF8 + WORDS.encode(), "text/plain; charset=iso-8859-1", WORDS),
        ("日本語".encode("shift_jis"), 'text/html; charset="Shift_JIS"', "日本語"),
        ("日本語".encode("euc-jp"), "text/html;charset='euc-jp'", "日本語"),
        ("中文".encode("gbk"), "text/html; charset=GB2312", "中文"),
        ("中文".encode("big5"), "text/html; charset=big5", "中文"),
        ("한국어".encode("euc-kr"), "text/html; charset=euc-kr", "한국어"),
        ("Привет".encode("koi8-r"), "text/html; charset=KOI8-R", "Привет"),
        ("Привет".encode("cp1251"), "text/html; charset=windows-1251", "Привет"),
        ("Žluť".encode("iso8859-2"), "text/html; charset=iso-8859-2", "Žluť"),
        # The header goes before the page's own word.
        ("Привет".encode("cp1251"), "text/html; charset=cp1251", "Привет"),
        (b"<meta charset=koi8-r>" + WORDS.encode(), "text/html; charset=utf-8", "<meta charset=koi8-r>" + WORDS),
        # Names that mean something to Python alone are no names.
        (b"+AGE-", "text/html; charset=utf-7", "+AGE-"),
        (b"\\u0041", "text/html; charset=unicode_escape", "\\u0041"),
        (b"uryyb", "text/html; charset=rot13", "uryyb"),
        (b"eJw=", "text/html; charset=zlib", "eJw="),
        (b"a-b", "text/html; charset=punycode", "a-b"),
        (b"xn--a", "text/html; charset=idna", "xn--a"),
        (b"41", "text/html; charset=hex", "41"),
        (WORDS.encode(), "text/html; charset=nonsense", WORDS),
        (WORDS.encode(), "text/html; charset=", WORDS),
        # Cut in the middle of a character.
        ("aü".encode()[:-1], "text/plain", "a"),
        (b"\xff\xfeA", "text/plain", "\ufffd"),
        (b"a\x81\xffb", "text/plain", "a\ufffd\u00ffb"),
        (b"", "text/plain", ""),
    ],
)
def test_the_mark_then_the_header_then_a_guess(data: bytes, content_type: str, text: str) -> None:
    assert decoded(data, content_type) == text


@pytest.mark.parametrize(
    ("start", "codec"),
    [
        (b'<html><head><meta charset="windows-1251">', "cp1251"),
        (b"<META CHARSET=windows-1251 >", "cp1251"),
        (b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r"),
        (b'<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        # It was found by reading ASCII, so it cannot be true.
        (b"<meta charset=utf-16>", "utf-8"),
    ],
)
def test_a_page_says_itself_how_it_is_written(start: bytes, codec: str) -> None:
    data = start + "Привет".encode(codec)
    assert decoded(data, "text/html", markup=True).endswith("Привет")
    if codec != "utf-8":
        assert not decoded(data, "text/plain").endswith("Привет")


@pytest.mark.timeout(20)
def test_a_start_made_to_take_long_is_read_soon() -> None:
    for unit in (b"<meta ", b"<meta charset", b"<meta charset=", b"<?xml ", b" "):
        assert decoded(unit * (2_000_000 // len(unit)), "text/html", markup=True)
