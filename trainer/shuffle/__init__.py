"""This package has the shuffle protocols: the messages of users, the output of the shuffler, and the estimates from
it."""

from trainer.shuffle.bits import BitProtocol
from trainer.shuffle.coins import Coins

__all__ = ["BitProtocol", "Coins"]
