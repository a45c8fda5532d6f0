"""From a page's bytes to its text: byte order mark, then the header, then what the page says of itself, then a guess.

Only encodings that the web has: Python knows others under names that a page could give, some of them slow on purpose-made
input.
"""

from __future__ import annotations

import codecs
import re

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LOOKED_AT = 4096
_META = re.compile(rb"""<meta[^>]{1,500}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_XML = re.compile(rb"""\A\s{0,100}<\?xml[^>]{1,200}?encoding\s*=\s*["']([A-Za-z0-9_:.-]{1,40})["']""")
_PARAMETER = re.compile(r"""charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)

_SAME = {
    "utf-8": ("utf8", "unicode-1-1-utf-8"),
    "utf-16-le": ("utf-16", "utf-16le", "unicode", "ucs-2"),
    "utf-16-be": ("utf-16be",),
    "ibm866": ("866", "cp866"),
    "cp1252": ("windows-1252", "iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1", "ascii", "us-ascii", "x-cp1252"),
    "cp1254": ("windows-1254", "iso-8859-9", "iso8859-9", "latin5"),
    "cp874": ("windows-874", "iso-8859-11", "tis-620"),
    "mac-roman": ("macintosh", "mac"),
    "mac-cyrillic": ("x-mac-cyrillic",),
    "gb18030": ("gbk", "gb2312", "chinese", "x-gbk", "gb_2312-80"),
    "big5hkscs": ("big5", "big5-hkscs", "cn-big5", "x-x-big5"),
    "euc_jp": ("euc-jp", "x-euc-jp"),
    "iso2022_jp": ("iso-2022-jp",),
    "cp932": ("shift_jis", "shift-jis", "sjis", "windows-31j", "ms_kanji", "x-sjis"),
    "cp949": ("euc-kr", "ks_c_5601-1987", "ksc5601", "korean", "windows-949"),
    "koi8-r": ("koi8", "koi"),
    "koi8-u": ("koi8-ru",),
    **{f"cp{number}": (f"windows-{number}", f"x-cp{number}") for number in (1250, 1251, 1253, 1255, 1256, 1257, 1258)},
    **{f"iso8859-{number}": (f"iso-8859-{number}",) for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
}
_CODECS = {label: codec for codec, labels in _SAME.items() for label in (codec, *labels)}


def decoded(data: bytes, content_type: str = "", *, markup: bool = False) -> str:
    """The text. What does not fit its encoding becomes a replacement character. ``markup``: look into it for a declaration."""
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    declared = _PARAMETER.search(content_type)
    codec_name = _CODECS.get(declared[1].lower()) if declared else None
    if codec_name is None and markup:
        codec_name = _said(data[:_LOOKED_AT])
    if codec_name is not None:
        return data.decode(codec_name, "replace")
    return _guessed(data)


def _said(start: bytes) -> str | None:
    """What a page says of itself. It was written in something like ASCII, or could not have been found."""
    found = _XML.search(start) or _META.search(start)
    codec = _CODECS.get(found[1].decode("ascii").lower()) if found else None
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def _guessed(data: bytes) -> str:
    try:
        # The end may have been cut in the middle of a character.
        return codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
