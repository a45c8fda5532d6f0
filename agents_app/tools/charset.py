"""Decodes a response's bytes: byte order mark, else the header's charset, else the page's declaration, else a guess.

Only the encodings of the web count. Python knows others under names that a page could declare, some of them slow on hostile
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
    """The text; invalid bytes become replacement characters. ``markup``: the page may declare its encoding."""
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    declared = _PARAMETER.search(content_type)
    codec_name = _CODECS.get(declared[1].lower()) if declared else None
    if codec_name is None and markup:
        codec_name = _declared(data[:_LOOKED_AT])
    if codec_name is not None:
        return data.decode(codec_name, "replace")
    return _guessed(data)


def _declared(start: bytes) -> str | None:
    """The encoding that a page declares; never UTF-16, because the declaration was found by reading ASCII."""
    found = _XML.search(start) or _META.search(start)
    codec = _CODECS.get(found[1].decode("ascii").lower()) if found else None
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def _guessed(data: bytes) -> str:
    try:
        # Incremental, because the last character may be cut off.
        return codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
