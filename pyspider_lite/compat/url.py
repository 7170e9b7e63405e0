"""What scripts import from ``pyspider.libs.url``."""

import mimetypes

from pyspider_lite.handler.curl import curl_to_arguments
from pyspider_lite.handler.url import build_url as _build_url
from pyspider_lite.handler.url import encode_form as _encode_params
from pyspider_lite.handler.url import quote_chinese


def get_content_type(filename: str) -> str:
    """The MIME type that the name suggests."""
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"
