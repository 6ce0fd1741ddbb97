from antwort.providers.files import FilesApi
from antwort.testing import ProviderContract


class TestFiles(ProviderContract):
    provider = FilesApi
