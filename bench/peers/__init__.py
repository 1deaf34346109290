"""The peers: other solvers of the same problems, each as a function from data to a curve of cost over time."""


class PeerMissingError(RuntimeError):
    """A peer is not installed; the text says what to install."""
