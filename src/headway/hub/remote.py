"""`hf://owner/name@revision`: a folder of the Hugging Face hub, downloaded on request."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from headway.errors import InputError

WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja", "1_Pooling/*"]


def _has_network(address: str) -> bool:
    """Whether the hub's name can be looked up: the library itself would try again and again for half a minute."""
    if getproxies():
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(address).hostname, None))
    except OSError:
        return False


def bring(name: str) -> Path:
    """The local copy of owner/name[@revision]; pickled weights only where there are no others."""
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors
    except ImportError:
        raise InputError("hf:// needs the package huggingface_hub: pip install 'headway[hub]'") from None
    repository, _, revision = name.partition("@")
    if len(repository.split("/")) != 2 or not all(repository.split("/")):
        raise InputError(f"hf://{name} is not a model: write hf://owner/name or hf://owner/name@revision")
    if not _has_network(constants.ENDPOINT):
        try:
            return Path(huggingface_hub.snapshot_download(repository, revision=revision or None, local_files_only=True))
        except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
            raise InputError(f"hf://{name} was not downloaded before, and there is no network to do it now") from None
    try:
        files = huggingface_hub.list_repo_files(repository, revision=revision or None)
        old = [] if any(file.endswith(".safetensors") for file in files) else ["*.bin"]
        place = huggingface_hub.snapshot_download(repository, revision=revision or None, allow_patterns=[*WANTED, *old])
    except Exception as error:  # of the hub's answer, of the network, of the disk
        first = (str(error).strip() or "no reason was given").splitlines()[0]
        raise InputError(f"hf://{name} cannot be downloaded: {first}") from error
    return Path(place)
