"""`hf://owner/name@revision`: a folder of the Hugging Face hub, downloaded on request."""

from __future__ import annotations

from pathlib import Path

from headway.errors import InputError

WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja", "1_Pooling/*"]


def bring(name: str) -> Path:
    """The local copy of owner/name[@revision]; pickled weights only where there are no others."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise InputError("hf:// needs the package huggingface_hub: pip install 'headway[hub]'") from None
    repository, _, revision = name.partition("@")
    if len(repository.split("/")) != 2 or not all(repository.split("/")):
        raise InputError(f"hf://{name} is not a model: write hf://owner/name or hf://owner/name@revision")
    try:
        files = huggingface_hub.list_repo_files(repository, revision=revision or None)
        old = [] if any(file.endswith(".safetensors") for file in files) else ["*.bin"]
        place = huggingface_hub.snapshot_download(repository, revision=revision or None, allow_patterns=[*WANTED, *old])
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"hf://{name} cannot be downloaded: {first}") from error
    return Path(place)
