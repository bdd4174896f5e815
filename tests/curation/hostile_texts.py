"""Texts of a data set that would do harm as markup, code, style or marks of direction."""

from __future__ import annotations

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script><!--",
    "</title></style><img src=x onerror=window.hacked=1>",
    '"onerror="window.hacked=1" x=\'',
    "javascript:window.hacked=1",
    "url(http://127.0.0.1:9/x);} * {display: none",
    "a\nnew\r\nline\tand \x00\x1b[31m control",
    "\u202etxe.gnp \u2066\u2067\u2068",
    "\u2069\u2069\u202eends every isolate",
    "\u202c\u202c\u2029\u202eends its paragraph",
    "\u2069\u202e\u05d0\u05d1\u05d2 \u0627\u0628 123",
    "{{script}} ${window.hacked=1} `x` __proto__ &lt; &#60;b&#62;",
)
