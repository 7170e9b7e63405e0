"""What scripts import from ``pyspider.libs.url``."""

import mimetypes
from typing import Any

from pyspider_lite.handler.curl import curl_to_arguments
from pyspider_lite.handler.url import build_url as _build_url
from pyspider_lite.handler.url import encode_form as _encode_params
from pyspider_lite.handler.url import encode_multipart, quote_chinese


def get_content_type(filename: str) -> str:
    """The MIME type that the name suggests."""
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"


def _encode_multipart_formdata(fields: Any, files: Any) -> tuple[str, bytes]:
    """Content type and body of an upload."""
    return encode_multipart(files, fields)
