"""A function whose memory is known, in a module that imports nothing."""


def hold(megabytes):
    """Touch so much memory, twice: a bytearray and its copy."""
    return len(bytes(bytearray(megabytes * 10**6)))
