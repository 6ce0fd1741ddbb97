"""Searches by words in other languages than English: questions have other endings than texts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.providers.file_search.vectors.conformance import STORE, TENANT, chunk, ids

from antwort.extensions import Chunk, Query
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.providers.file_search.vectors.embedded.keywords import stemmed_as

ASKED: dict[str, list[tuple[str, str]]] = {
    "de": [
        ("Das Mietverhältnis kann mit einer Frist von drei Monaten schriftlich gekündigt werden.", "Fristen der Miete"),
        ("In den Häusern der Altstadt wurden die Fenster im letzten Jahr erneuert.", "neues Haus Altstädte"),
        ("Die Bäume im Garten werden im Herbst geschnitten.", "Wann schneidet man einen Baum?"),
        ("Der Antrag auf Urlaub ist beim Vorgesetzten zu stellen.", "Anträge für den Urlaub"),
        ("Rechnungen sind innerhalb von dreißig Tagen zu bezahlen.", "Bezahlung einer Rechnung"),
        ("Das Schwimmbad öffnet an Werktagen um sieben Uhr.", "Öffnung der Schwimmbäder"),
        ("Kinder unter sechs Jahren fahren in allen Zügen kostenlos.", "Kostet der Zug für ein Kind?"),
        (
            "Im Krankenhaus gelten für Besucher feste Besuchszeiten.",
            "Wann darf ich jemanden in Krankenhäusern besuchen?",
        ),
    ],
    "fr": [
        ("Les chevaux sont nourris deux fois par jour, le matin et le soir.", "Quand nourrir un cheval ?"),
        ("Le contrat de location prend fin trois mois après la résiliation.", "résilier des contrats"),
        ("La piscine municipale est ouverte tous les jours de la semaine.", "ouverture des piscines municipales"),
        (
            "Les factures doivent être payées dans un délai de trente jours.",
            "Quel délai pour le paiement d'une facture ?",
        ),
        ("Les enfants de moins de six ans voyagent gratuitement dans le train.", "voyage gratuit pour un enfant"),
        ("Toute demande de congé est adressée au responsable du service.", "À qui adresser les demandes de congés ?"),
        ("Les arbres du jardin sont taillés en automne par les jardiniers.", "tailler un arbre"),
        ("Les visiteurs peuvent entrer dans l'hôpital de quatorze à vingt heures.", "heure de visite des hôpitaux"),
    ],
    "es": [
        ("Los caballos se alimentan dos veces al día, por la mañana y por la noche.", "¿Cuándo alimentar un caballo?"),
        ("El contrato de alquiler termina tres meses después de la rescisión.", "rescindir contratos alquilados"),
        ("La piscina municipal abre todos los días de la semana.", "apertura de las piscinas municipales"),
        ("Las facturas deben pagarse en un plazo de treinta días.", "plazos para pagar una factura"),
        ("Los niños menores de seis años viajan gratis en el tren.", "¿Viaja gratis mi niño en los trenes?"),
        ("Toda solicitud de vacaciones se dirige al responsable del servicio.", "solicitudes para el responsable"),
        ("Los árboles del jardín se podan en otoño.", "podar un árbol en los jardines"),
        ("Los visitantes pueden entrar en el hospital entre las dos y las ocho.", "visitante de hospitales"),
    ],
}
"""By language: texts, and for each a question about it."""


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Embedded]:
    backend = Embedded(tmp_path / "vectors")
    await backend.create_collection(STORE, 4)
    yield backend
    await backend.close()


def chunks_of(language: str, *, first: int = 0, is_told: bool = True) -> list[Chunk]:
    """Return the texts of a language, which say it themselves or not."""
    attributes = {"language": language} if is_told else {}
    return [chunk(first + number, text, attributes=attributes) for number, (text, _) in enumerate(ASKED[language])]


async def found_first(backend: Embedded, language: str, first: int = 0) -> int:
    """Count the questions whose text is found first."""
    found = [await backend.search(STORE, Query(TENANT, text=question)) for _, question in ASKED[language]]
    return sum(ids(hits)[:1] == [first + number] for number, hits in enumerate(found))


@pytest.mark.parametrize("language", list(ASKED))
async def test_words_are_found_with_the_endings_of_their_language(backend: Embedded, language: str) -> None:
    await backend.upsert(STORE, chunks_of(language, is_told=False))
    as_english = await found_first(backend, language)
    await backend.upsert(STORE, chunks_of(language))
    assert await found_first(backend, language) == len(ASKED[language]) > as_english


@pytest.mark.parametrize("others", [0, 501])
async def test_a_store_may_have_texts_of_several_languages(backend: Embedded, others: int) -> None:
    """Also one with so many others that there are indexes."""
    english = [chunk(1000 + number, f"the manual, page {number}") for number in range(others)]
    kinds = ["The horses are fed twice a day.", "Invoices are to be paid within thirty days."]
    await backend.upsert(STORE, [*english, *(chunk(900 + number, text) for number, text in enumerate(kinds))])
    for place, language in enumerate(ASKED):
        await backend.upsert(STORE, chunks_of(language, first=100 * place))
    found = [await found_first(backend, language, 100 * place) for place, language in enumerate(ASKED)]
    assert sum(found) >= sum(map(len, ASKED.values())) - 1  # some words are those of several languages
    assert ids(await backend.search(STORE, Query(TENANT, text="feeding a horse")))[:1] == [900]
    assert ids(await backend.search(STORE, Query(TENANT, text="paying for invoices")))[:1] == [901]


@pytest.mark.parametrize("others", [0, 501])
async def test_the_language_of_texts_can_be_told_later(backend: Embedded, others: int) -> None:
    await backend.upsert(STORE, [chunk(1000 + number, f"page {number}", file="other") for number in range(others)])
    await backend.upsert(STORE, chunks_of("de", is_told=False))
    query = Query(TENANT, text="Altstädte")
    assert await backend.search(STORE, query) == []
    await backend.set_attributes(STORE, {"language": "de-AT"}, tenant=TENANT, file_id=chunk(0).file_id)
    assert ids(await backend.search(STORE, query)) == [1]
    await backend.set_attributes(STORE, {}, tenant=TENANT, file_id=chunk(0).file_id)
    assert await backend.search(STORE, query) == []


@pytest.mark.parametrize(
    ("language", "text", "question"),
    [("zh", "我们的产品手册在这里", "手册"), ("ja", "製品の説明書はここにあります", "説明書")],
)
async def test_words_are_found_that_no_spaces_part(backend: Embedded, language: str, text: str, question: str) -> None:
    await backend.upsert(STORE, [chunk(1, text, attributes={"language": language}), chunk(2, "other")])
    assert ids(await backend.search(STORE, Query(TENANT, text=question))) == [1]


@pytest.mark.parametrize(
    ("said", "meant"),
    [("de", "de"), ("pt-BR", "pt"), ("German", "de"), ("en", ""), ("tlh", ""), ("", ""), (3, ""), (None, "")],
)
def test_a_language_is_known_by_its_code_or_its_name(said: object, meant: str) -> None:
    assert stemmed_as({} if said is None else {"language": said}) == meant
