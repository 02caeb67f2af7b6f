"""The version of this installation: what `stelae --version`, the client's User-Agent and every manifest say."""

__version__ = "0.1.0"
