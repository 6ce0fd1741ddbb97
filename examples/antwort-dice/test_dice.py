from antwort_dice import Dice

from antwort.testing import ProviderContract


class TestDice(ProviderContract):
    provider = Dice
