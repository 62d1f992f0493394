"""PAM by ctypes: whether a password is a user's, and whether the account can be used now."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from pathlib import Path

from toolkit.login import PAM_SERVICE

_OK, _CONV_ERR = 0, 19
_PROMPT_ECHO_OFF = 1
_DISALLOW_NULL = 1


class _Message(ctypes.Structure):
    _fields_ = (("style", ctypes.c_int), ("words", ctypes.c_char_p))


class _Response(ctypes.Structure):
    # A pointer and no c_char_p: PAM frees what is in it.
    _fields_ = (("words", ctypes.c_void_p), ("code", ctypes.c_int))


_Converse = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(_Message)),
    ctypes.POINTER(ctypes.POINTER(_Response)),
    ctypes.c_void_p,
)


class _Conversation(ctypes.Structure):
    _fields_ = (("converse", _Converse), ("data", ctypes.c_void_p))


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    pam = ctypes.CDLL(ctypes.util.find_library("pam") or "libpam.so.0")
    libc = ctypes.CDLL(None)
    libc.calloc.restype = libc.strdup.restype = ctypes.c_void_p
    libc.calloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    libc.strdup.argtypes = (ctypes.c_char_p,)
    pam.pam_start.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(_Conversation),
        ctypes.POINTER(ctypes.c_void_p),
    )
    for name in ("pam_authenticate", "pam_acct_mgmt", "pam_end"):
        getattr(pam, name).argtypes = (ctypes.c_void_p, ctypes.c_int)
    return pam, libc


def check(user: str, password: str, files: Path | None = None) -> bool:
    """Whether the password is the user's, and the account neither locked nor expired. A wrong one takes as long as the
    system's PAM makes it take (2 s by default). files: the folder of PAM's
    files, None for the system's. OSError where PAM does not start."""
    if "\0" in user or "\0" in password:
        return False
    try:  # here, for in the conversation an error would be PAM's to read
        secret = password.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    pam, libc = _libraries()

    def answer(count: int, messages: object, responses: object, _data: object) -> int:
        if count < 1 or count > 32:
            return _CONV_ERR
        rows = libc.calloc(count, ctypes.sizeof(_Response))
        if not rows:
            return _CONV_ERR
        filled = ctypes.cast(rows, ctypes.POINTER(_Response))
        for index in range(count):
            # A second secret, such as a code, has the same kind of prompt; the same answer to it is wrong.
            if messages[index].contents.style == _PROMPT_ECHO_OFF:  # type: ignore[index]
                filled[index].words = libc.strdup(secret)
        responses[0] = filled  # type: ignore[index]
        return _OK

    return _session(pam, user, files, _Converse(answer), authenticate=True)


def usable(user: str, files: Path | None = None) -> bool:
    """Whether the account can be used now, without a password: neither locked nor expired."""
    pam, _ = _libraries()
    return _session(pam, user, files, _Converse(lambda *_: _CONV_ERR), authenticate=False)


def _session(
    pam: ctypes.CDLL, user: str, files: Path | None, converse: Callable[..., int], *, authenticate: bool
) -> bool:
    handle = ctypes.c_void_p()
    conversation = _Conversation(converse, None)
    name = user.encode("utf-8", "surrogateescape")
    begin = (PAM_SERVICE.encode(), name, ctypes.byref(conversation))
    if files is None:
        status = pam.pam_start(*begin, ctypes.byref(handle))
    else:
        status = pam.pam_start_confdir(*begin, str(files).encode(), ctypes.byref(handle))
    if status != _OK:
        raise OSError(f"PAM does not start for its service {PAM_SERVICE}")
    if authenticate:
        status = pam.pam_authenticate(handle, _DISALLOW_NULL)
    if status == _OK:
        status = pam.pam_acct_mgmt(handle, _DISALLOW_NULL)
    pam.pam_end(handle, status)
    return bool(status == _OK)
