"""Time zones and places named in a text."""

import re
from dataclasses import dataclass

__all__ = ["Place", "places"]

# Names in lower case, separated by a bar.
_ZONES = {
    "UTC": "utc|gmt|greenwich",
    "Europe/Berlin": "berlin|germany|deutschland|munich|münchen|hamburg|frankfurt|cologne|köln",
    "Europe/London": "london|england|united kingdom|uk|edinburgh|manchester",
    "Europe/Dublin": "dublin|ireland",
    "Europe/Paris": "paris|france|frankreich|lyon|marseille",
    "Europe/Madrid": "madrid|spain|spanien|barcelona",
    "Europe/Lisbon": "lisbon|lissabon|portugal",
    "Europe/Rome": "rome|rom|italy|italien|milan|mailand",
    "Europe/Vienna": "vienna|wien|austria|österreich",
    "Europe/Zurich": "zurich|zürich|switzerland|schweiz|geneva|genf|bern",
    "Europe/Amsterdam": "amsterdam|netherlands|niederlande",
    "Europe/Brussels": "brussels|brüssel|belgium|belgien",
    "Europe/Copenhagen": "copenhagen|kopenhagen|denmark|dänemark",
    "Europe/Stockholm": "stockholm|sweden|schweden",
    "Europe/Oslo": "oslo|norway|norwegen",
    "Europe/Helsinki": "helsinki|finland|finnland",
    "Europe/Warsaw": "warsaw|warschau|poland|polen",
    "Europe/Prague": "prague|prag|czechia|tschechien",
    "Europe/Budapest": "budapest|hungary|ungarn",
    "Europe/Athens": "athens|athen|greece|griechenland",
    "Europe/Kyiv": "kyiv|kiev|kiew|ukraine",
    "Europe/Istanbul": "istanbul|ankara|turkey|türkei",
    "Europe/Moscow": "moscow|moskau",
    "Atlantic/Reykjavik": "reykjavik|iceland|island",
    "Africa/Cairo": "cairo|kairo|egypt|ägypten",
    "Africa/Lagos": "lagos|nigeria",
    "Africa/Nairobi": "nairobi|kenya|kenia",
    "Africa/Johannesburg": "johannesburg|cape town|kapstadt|south africa|südafrika",
    "Asia/Jerusalem": "jerusalem|tel aviv|israel",
    "Asia/Riyadh": "riyadh|riad|saudi arabia",
    "Asia/Dubai": "dubai|abu dhabi",
    "Asia/Tehran": "tehran|teheran|iran",
    "Asia/Karachi": "karachi|pakistan",
    "Asia/Kolkata": "kolkata|mumbai|delhi|new delhi|bangalore|bengaluru|india|indien",
    "Asia/Dhaka": "dhaka|bangladesh",
    "Asia/Bangkok": "bangkok|thailand",
    "Asia/Ho_Chi_Minh": "ho chi minh city|hanoi|vietnam",
    "Asia/Jakarta": "jakarta|indonesia|indonesien",
    "Asia/Singapore": "singapore|singapur",
    "Asia/Manila": "manila|philippines|philippinen",
    "Asia/Hong_Kong": "hong kong|hongkong",
    "Asia/Taipei": "taipei|taiwan",
    "Asia/Shanghai": "shanghai|beijing|peking|shenzhen|china",
    "Asia/Seoul": "seoul|south korea|südkorea|korea",
    "Asia/Tokyo": "tokyo|tokio|osaka|kyoto|japan",
    "Australia/Perth": "perth",
    "Australia/Sydney": "sydney|canberra|melbourne",
    "Australia/Brisbane": "brisbane",
    "Pacific/Auckland": "auckland|wellington|new zealand|neuseeland",
    "Pacific/Honolulu": "honolulu|hawaii",
    "America/Anchorage": "anchorage|alaska",
    "America/Los_Angeles": "los angeles|san francisco|seattle|san diego|las vegas|california|kalifornien",
    "America/Vancouver": "vancouver",
    "America/Denver": "denver|colorado",
    "America/Chicago": "chicago|houston|dallas|austin|texas",
    "America/New_York": "new york|boston|washington|miami|atlanta|philadelphia",
    "America/Toronto": "toronto|ottawa|montreal",
    "America/Mexico_City": "mexico city|mexico|mexiko",
    "America/Bogota": "bogota|bogotá|colombia|kolumbien",
    "America/Lima": "lima|peru",
    "America/Santiago": "santiago|chile",
    "America/Sao_Paulo": "são paulo|sao paulo|rio de janeiro|brazil|brasilien",
    "America/Argentina/Buenos_Aires": "buenos aires|argentina|argentinien",
}
_IANA = re.compile(
    r"\b(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc)/[A-Za-z0-9_+/-]*[A-Za-z0-9]"
)
_NAMED = re.compile(
    r"\b(?:in|at|near|around|for|from|to)\s+"
    r"([A-ZÄÖÜ][\w'/-]*(?:(?:\s+|,\s*|\s+(?:and|or|und|oder)\s+)[A-ZÄÖÜ][\w'/-]*)*)"
)
_LIST = re.compile(r",\s*|\s+(?:and|or|und|oder)\s+")


@dataclass(frozen=True, slots=True)
class Place:
    """A place as the text has it, and its time zone where known."""

    name: str
    zone: str | None


def places(text: str) -> list[Place]:
    """Return the places a text names, in order: known cities and countries, IANA zones, and names after `in`."""
    found: dict[int, tuple[int, Place]] = {}
    for match in _IANA.finditer(text):
        found[match.start()] = (match.end(), Place(match.group(), match.group()))
    for zone, names in _ZONES.items():
        for match in re.finditer(rf"(?<![\w/])(?:{names})(?![\w/])", text, re.IGNORECASE):
            start, end = match.span()
            if start not in found or found[start][0] < end:
                found[start] = (end, Place(match.group(), zone))
    for match in _NAMED.finditer(text):
        start = match.start(1)
        for name in _LIST.split(match.group(1)):
            position = text.index(name, start)
            start = position + len(name)
            found.setdefault(position, (start, Place(name, None)))
    return _apart(found)


def _apart(found: dict[int, tuple[int, Place]]) -> list[Place]:
    """Return the places in the order of the text, those inside or repeating another left out."""
    result: list[Place] = []
    covered = 0
    for start in sorted(found):
        end, place = found[start]
        if start >= covered:
            covered = end
            if place.zone is None or place.zone not in {other.zone for other in result}:
                result.append(place)
    return result
