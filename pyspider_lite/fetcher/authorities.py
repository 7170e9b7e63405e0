"""Whose certificates are trusted unless ``ca-file`` says it."""

import os
import ssl

import certifi


def system_ca_file() -> str:
    """The system's file of trusted authorities, else certifi's (demand UA7)."""
    candidates = (
        ssl.get_default_verify_paths().cafile,
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    )
    return next((path for path in candidates if path and os.path.isfile(path)), certifi.where())
