"""Where a host is on the network, and whether two hosts are one machine."""

from __future__ import annotations

import array
import contextlib
import os
import platform
import socket
import struct
import uuid
from pathlib import Path

from stead.errors import RunFailed

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_NOWHERE = ("192.0.2.1", 9)  # of a network for examples (RFC 5737): the way there is looked up, nothing is sent
ONE_STREAM = socket.SOCK_STREAM


def own_address(given: str = "") -> str:
    """The address that others reach this host at: as given, of `GLOO_SOCKET_IFNAME`, or the one it has."""
    if given:
        try:
            return str(socket.getaddrinfo(given, 0, type=ONE_STREAM)[0][4][0])
        except OSError as error:
            raise RunFailed(f"{given} cannot be resolved: {error.strerror}; give an address as NAME=ADDRESS") from None
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if interface:
        found = _address_of(interface)
        if not found:
            raise RunFailed(f"GLOO_SOCKET_IFNAME is {interface}, which has no address; name another interface")
        return found
    return _towards_network() or _only_one()


def machine_identity() -> str:
    """A text that is the same for all hosts of one running machine, and differs between machines."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()}/{uuid.getnode()}"


def _towards_network() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(_NOWHERE)
        return str(probe.getsockname()[0])
    return ""


def _only_one() -> str:
    """The address of the only interface that has one, the loopback apart."""
    found = {name: _address_of(name) for _, name in socket.if_nameindex() if name != "lo"}
    known = {name: address for name, address in found.items() if address}
    if len(known) == 1:
        return next(iter(known.values()))
    names = ", ".join(known) or "none"
    raise RunFailed(f"the network between hosts cannot be told from interfaces ({names}); give NAME=ADDRESS")


def _address_of(interface: str) -> str:
    try:
        import fcntl
    except ImportError:
        return ""
    request = array.array("b", struct.pack("256s", interface.encode()[:15]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe.fileno(), _ADDRESS_OF_INTERFACE, request)
        except OSError:
            return ""
    return socket.inet_ntoa(request.tobytes()[20:24])
