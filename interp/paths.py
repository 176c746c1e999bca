"""What callers give as a file or a folder, checked before anything is read or written."""

import os
from pathlib import Path


def path_of(given: object, wanted: str = "a file or folder") -> Path:
    """A path, as one.

    Raises:
        TypeError: It is no text and no path.
        ValueError: It is the empty text, which `Path` takes for the current directory.
    """
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"wanted {wanted}, a str or Path; got {given!r}")
    if given == "":
        raise ValueError(f"wanted {wanted}, got ''; for the current directory give '.'")
    return Path(given)


def made_folder(given: object) -> Path:
    """A folder to write into, made if need be.

    Raises:
        FileExistsError: There is a file where it, or a folder above it, should be.
        TypeError: It is no text and no path.
        ValueError: It is the empty text.
    """
    folder = path_of(given, "a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(place for place in (folder, *folder.parents) if place.exists())
        raise FileExistsError(
            f"wanted a folder to write into, got {folder}, but {file} is a file; "
            "name a folder, or one that is not there yet"
        ) from error
    return folder
