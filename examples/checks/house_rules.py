"""Checks of an author's own. In a folder given with `--plugins-dir`, they are all that it takes."""

from antwort.provider import Allow, Ask, CheckedCall, Mask, Provider, Refuse, Verdict, check


class HouseRules(Provider):
    """What may be said and done in this house."""

    @check("input", "output", holds=20)
    def no_rival(self, text: str) -> Verdict:
        """Speak of others only in general."""
        return Mask(text.replace("Acme", "another maker")) if "Acme" in text else Allow()

    @check("output")
    def no_promises(self, text: str) -> Verdict:
        """Promise nothing: a person does that."""
        return Refuse("Prices are told by people only.") if "guarantee" in text.lower() else Allow()

    @check("call")
    def ask_about_much_money(self, call: CheckedCall) -> Verdict:
        """Let somebody approve what is dear."""
        amount = call.arguments.get("amount", 0)
        return Ask(f"It is about {amount}.") if isinstance(amount, int) and amount > 100 else Allow()
