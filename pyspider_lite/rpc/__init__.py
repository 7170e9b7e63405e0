"""XML-RPC over HTTP for the roles that are controlled from outside (behaviour 4.14, 5.8).

Loopback by default; who listens for other machines needs `rpc-secret`, for whoever reaches the port controls the crawl. `bootstrap`
binds the port early, so that the beats can name it, and serves when the role exists.
"""

from pyspider_lite.rpc.calls import FAULT as FAULT
from pyspider_lite.rpc.server import RpcServer as RpcServer
