"""Who a worker is: made once at its start, said with every beat. Schedulers have one, too."""

import os
import secrets
import socket
import time
from typing import Any

import msgspec
from msgspec import Struct

import pyspider_lite
from pyspider_lite.models.worker import Beat


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """Who a worker is."""

    #: host:pid:nonce, another one at every start
    worker: str
    role: str
    host: str
    pid: int
    version: str = ""
    config_hash: str = ""
    #: tasks it can have in hand at once
    pool_size: int = 1
    #: address of its XML-RPC server, "" if it has none
    rpc: str = ""
    #: address of its health port, "" if it has none
    health: str = ""
    #: its work is done by a class of the user
    own_class: bool = False

    @classmethod
    def make(cls, role: str, pool_size: int, config_hash: str = "", rpc: str = "", health: str = "") -> "WorkerInfo":
        """This process in this role."""
        host, pid = socket.gethostname(), os.getpid()
        return cls(
            worker=f"{host}:{pid}:{secrets.token_hex(4)}",
            role=str(role),
            host=host,
            pid=pid,
            version=getattr(pyspider_lite, "__version__", ""),
            config_hash=config_hash,
            pool_size=pool_size,
            rpc=rpc,
            health=health,
        )

    def beat(self, **said: Any) -> Beat:
        """A beat of this worker; ``said`` is the rest of it."""
        return Beat(**{**msgspec.structs.asdict(self), "time": time.time(), **said})
