"""What libcurl's error codes mean, in our kinds of errors (`models.page.FetchResponse.error_kind`). Asked by `transfer`."""

import pycurl

_KINDS = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_RESOLVE_PROXY: "proxy",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_SEND_ERROR: "connect",
    pycurl.E_RECV_ERROR: "connect",
    pycurl.E_GOT_NOTHING: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_PARTIAL_FILE: "truncated",
    pycurl.E_URL_MALFORMAT: "invalid-url",
    97: "proxy",  # E_PROXY
    100: "too-large",  # E_TOO_LARGE: one header line over libcurl's own limit
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_SSL_ENGINE_NOTFOUND: "tls",
    pycurl.E_SSL_ENGINE_SETFAILED: "tls",
    pycurl.E_USE_SSL_FAILED: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_SHUTDOWN_FAILED: "tls",
    pycurl.E_SSL_CRL_BADFILE: "tls",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
}
#: for what libcurl says nothing about
_TEXTS = {100: "a header line is longer than libcurl allows (100 KiB)"}


def text_of(code: int) -> str:
    """Where libcurl has no words for it."""
    return _TEXTS.get(code) or f"libcurl error {code}"


def kind_of(code: int, text: str, *, refused: bool, proxied: bool, connect_code: int, answered: bool) -> str:
    """The kind of a failure that libcurl calls ``code`` and ``text``: of a transfer to an address that was ``refused``, ``proxied`` by a
    proxy that answered CONNECT with ``connect_code`` (0: it did not), ``answered`` as far as a status line."""
    kind = _KINDS.get(code, "protocol")
    if kind == "connect" and refused:
        return "refused-address"
    if proxied and (code == pycurl.E_COULDNT_CONNECT or (code == pycurl.E_RECV_ERROR and connect_code >= 300)):
        return "proxy"
    return _receive_kind(text, answered) if code == pycurl.E_RECV_ERROR else kind


def _receive_kind(text: str, answered: bool) -> str:
    lower = text.lower()
    if "chunk" in lower:
        return "protocol"
    if "too large response header" in lower:
        return "too-large"
    return "truncated" if answered else "connect"
