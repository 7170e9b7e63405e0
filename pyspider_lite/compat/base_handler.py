"""What ``from pyspider.libs.base_handler import *`` gave: the handler, and every name that module happened to have (H5)."""

import fractions
import functools
import inspect
import sys
from importlib import import_module
from pprint import pprint
from typing import Any

from pyspider_lite.compat import six_shim
from pyspider_lite.compat.utils import ListO, timeout
from pyspider_lite.handler import BaseHandler, Outcome, catch_status_code_error, config, every, not_send_status
from pyspider_lite.handler.curl import curl_to_arguments
from pyspider_lite.handler.url import md5string, quote_chinese
from pyspider_lite.response import Response, rebuild_response

try:
    six: Any = import_module("six")
except ModuleNotFoundError:
    six = six_shim

add_metaclass = six.add_metaclass
iteritems = six.iteritems
NOTSET = object()
BaseHandlerMeta = type(BaseHandler)
ProcessorResult = Outcome
