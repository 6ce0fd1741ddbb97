# ruff: noqa: RUF001 - letters of one script look like those of another
"""In which language a text is: by its letters, and where these are Latin or Cyrillic, by its most frequent words.

No library: those that are small take megabytes and a third of a second to load, and guess where there is nothing to go
by. Words of a dozen letters at most that nearly every sentence has tell these languages apart from a few lines on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

from antwort.lazy_imports import compiled_on_use

_PIECE, _PIECES = 2000, 4
"""Characters that are looked at together, and how many times in a text: at its beginning, its end, and between."""
_FEWEST = 4
"""Frequent words that there are at least: fewer are chance, or code."""
_SHARE = 0.08
"""The part of a text's words that are frequent ones, at least; of prose it is a third."""
_LEAD = 1.5
"""How many times more than those of any other language, where each is counted that only one of the two has."""
_SCRIPT_SHARE = 0.15
"""The part of a text's letters that one kind of them has, at least: manuals are full of names in Latin ones."""

_WORD = compiled_on_use(r"[^\W\d_]+")
_SCRIPTS = (
    ("latin", "a", "z"),
    ("latin", "\u00df", "\u024f"),
    ("latin", "\u1e00", "\u1eff"),
    ("cyrillic", "\u0400", "\u04ff"),
    ("ja", "\u3040", "\u30ff"),
    ("zh", "\u4e00", "\u9fff"),
    ("ko", "\uac00", "\ud7a3"),
    ("el", "\u0370", "\u03ff"),
    ("el", "\u1f00", "\u1fff"),
    ("ar", "\u0620", "\u06ff"),
    ("he", "\u05d0", "\u05ea"),
    ("hy", "\u0531", "\u0587"),
    ("ta", "\u0b80", "\u0bff"),
    ("th", "\u0e00", "\u0e7f"),
)
"""The letters of each kind, in lower case: the first and the last. A kind that one language alone is written in is
named after it. Of those that several share, such as that of Hindi, nothing is said."""
_PERSIAN = frozenset("\u067e\u0686\u0698\u06af\u06cc\u06a9")
"""Letters that Arabic does not have."""
_PERSIAN_SHARE = 0.02
_KANA_SHARE = 0.05
"""The part of a Japanese text's letters that are not Chinese, at least."""

_FREQUENT: Mapping[str, str] = {
    "bg": "и на се от за не да е са по че като това или със тази този бъде може към при които който само през още "
    "има трябва ще във след както",
    "ca": "de la el i a que les per en un una amb és els del al no es ha seva són com més aquest aquesta pot però "
    "també si dels ser o perquè hi sobre entre quan fins",
    "cs": "a se na je v že to s z do o pro jako by ale po za k jsou které který která jeho být bylo nebo při podle "
    "také může pokud není aby tento této jen než ve ze jsem již musí",
    "da": "og i at er det en af til på som for den med de der ikke et har fra kan om var eller vil også men skal "
    "efter ved blev blive nogle hvis hvad man sig kun deres være meget denne når op ud uden mellem mod bør dit dine "
    "bruges vælg indtast været havde siger sagde nu før flere både",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er "
    "hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum kann nur ihre wenn oder durch",
    "en": "the of and to in a is that for it as was with be by on not he i this are or his from at which but have an "
    "had they you were their one all we can has there been if more when will would who so no out up into than them",
    "es": "de la que el en y a los del se las por un para con no una su al lo como más o pero sus le ha este si "
    "porque esta entre cuando muy sin sobre también hasta hay donde puede ser son fue está debe",
    "et": "ja on ei et see kui ka mis oma ta või kes aga siis seda nii olid oli pole selle mida üle ning kus peab "
    "ole saab võib iga ainult tema välja pärast",
    "fi": "ja on ei se että oli hän ovat mutta kun myös tai joka ole kuin jos niin sen mitä mukaan kanssa vain sekä "
    "voi olla jossa hänen siitä ennen jonka jälkeen tämä tämän joita eivät enää kaikki jotka muut tulee voit täytyy "
    "anna yksi",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec ou son "
    "aux mais comme cette ont ses été être leur nous vous peut si d l elle sans doit",
    "hr": "i je u na se da za su od s kao koji koja koje a o ali iz ne nije bi po biti ili te što samo može više do "
    "nakon kako prije mora ako sve uz bio jer ima",
    "hu": "a az és hogy nem is egy van meg ez de ha vagy csak már volt mint kell ezt lehet minden még fel azt el "
    "után nincs aki ami által amely más során között lesz",
    "id": "yang dan di dari untuk dengan ini pada tidak dalam adalah itu akan oleh juga ke sebagai atau bahwa dapat "
    "telah saya anda mereka harus karena ada bisa lebih jika",
    "it": "di e il la che a in per un è del non i le della con una si da sono al come dei più nel gli alla anche lo "
    "ha delle su ma o se questo essere può dal nella ai ci stato deve quando tra",
    "lt": "ir yra kad su iš į tai kaip bet jo už buvo ar taip tik nuo jis po dar prie šis kai apie pagal arba nėra "
    "gali turi būti jei šio ne savo iki",
    "lv": "un ir ar no par ka uz kas bija tas arī vai kā pēc nav to bet lai tiek pie ja var savu būt tikai līdz šis "
    "gan tā ne kuru tās jābūt",
    "nl": "de van het een en in is dat op te zijn voor met die niet aan er om ook als door maar bij naar uit dit of "
    "worden wordt heeft hebben kan nog deze tot over moet zich geen was meer",
    "no": "og i det er til på en av for at som med å de ikke har et den fra kan om var eller vil også men skal etter "
    "ved ble bli noen hvis hva man seg bare deres være mye denne når blir må opp ut uten mellom mot bør ditt dine "
    "brukes velg skriv vært hadde sier sa nå før flere både",
    "pl": "w i na z się nie do to że jest o jak od po a co ale za przez jego tym są lub dla ma być oraz tylko może "
    "który która które jeśli ich przy także już było ze musi",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos como ao das à seu sua ou quando "
    "muito nos já está também só pelo pela até isso ela entre depois sem são ser pode deve é foi",
    "ro": "de și în a la cu pe nu o să că din care este un pentru ce mai se sau fi au prin sunt dar ca fost dacă "
    "după această acest lui al ale unei unui poate când trebuie",
    "ru": "и в не на что с по как это из он к но за у его от так о же для все или был а только если мы может при до "
    "также вы она они быть когда которые который чтобы есть после",
    "sk": "a sa na je v že to s z do o pre ako by ale po za k sú ktoré ktorý ktorá jeho byť bolo alebo pri podľa "
    "tiež môže pokiaľ nie aby tento tejto len než vo zo som už musí ak",
    "sl": "in je v na se za da so ki z s ne pa po od tudi kot iz pri bi ali ni do lahko ker še samo če to jih bil "
    "mora kako kjer tega",
    "sv": "och i att det som en på är av för med den till inte de om har ett men var kan från så eller vid när också "
    "sig efter ska skall bara denna måste dess mycket utan blir vill inom",
    "tr": "ve bir bu da de için ile olarak çok daha olan gibi en ne var kadar sonra değil o ya ise her ama veya "
    "olduğu tarafından olur ki göre mi içinde gerekir",
    "uk": "і в не на що з до як це та у за від по його але для є й про також може або якщо які який бути після між "
    "вона коли був було цей тільки має",
    "vi": "và của là các có được cho một không trong với những này đã người để khi trên đến từ bạn cũng ra như về "
    "phải nếu tại hoặc theo",
}


@cache
def _languages_of() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for language, words in _FREQUENT.items():
        for word in set(words.split()):
            found.setdefault(word, []).append(language)
    return {word: tuple(languages) for word, languages in found.items()}


_OWN = tuple(dict.fromkeys(kind for kind, *_ in _SCRIPTS if kind not in {"latin", "cyrillic", "ja", "zh"}))


def language_of(text: str) -> str:
    """Return the language of a text, as ISO 639-1 writes it, such as `de`; empty if it has none that is surely told."""
    sample = "\n".join(_pieces(text)).lower()
    letters = Counter(sample)
    kinds: Counter[str] = Counter()
    for letter, count in letters.items():
        kinds[_kind(letter)] += count
    del kinds[""]
    total = kinds.total()
    if kinds["ja"] + kinds["zh"] > _SCRIPT_SHARE * total:
        return "ja" if kinds["ja"] >= _KANA_SHARE * (kinds["ja"] + kinds["zh"]) else "zh"
    kind = max(_OWN, key=kinds.__getitem__)
    if kinds[kind] <= _SCRIPT_SHARE * total:
        return _by_frequent_words(_WORD.findall(sample))
    if kind == "ar" and sum(letters[letter] for letter in _PERSIAN) >= _PERSIAN_SHARE * kinds[kind]:
        return "fa"
    return kind


def _kind(letter: str) -> str:
    return next((kind for kind, first, last in _SCRIPTS if first <= letter <= last), "")


def _by_frequent_words(words: list[str]) -> str:
    known = _languages_of()
    counts = {word: count for word, count in Counter(words).items() if word in known}
    shares: Counter[str] = Counter()
    for word, count in counts.items():
        for language in known[word]:
            shares[language] += count
    if not shares:
        return ""
    (best, most), *others = shares.most_common(2)
    if most < max(_FEWEST, _SHARE * len(words)):
        return ""
    for other, _ in others:  # what both have says nothing
        own, its = (
            sum(count for word, count in counts.items() if one in known[word] and two not in known[word])
            for one, two in ((best, other), (other, best))
        )
        if own < _LEAD * its:
            return ""
    return best


def _pieces(text: str) -> Iterator[str]:
    if len(text) <= _PIECES * _PIECE:
        yield text
        return
    step = (len(text) - _PIECE) // (_PIECES - 1)
    for start in range(0, len(text) - _PIECE + 1, step):
        yield text[start : start + _PIECE]
