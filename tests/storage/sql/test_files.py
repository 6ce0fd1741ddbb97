"""How many bytes the files of a tenant have is kept with every change, whoever changes it at the same time."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from antwort.storage import FileRecord, Store

TENANTS = ("acme", "umbrella")


def file(number: int, tenant: str, part_of: str = "") -> FileRecord:
    return FileRecord(
        id=f"file-{number:05}",
        tenant=tenant,
        filename="a.txt",
        purpose="user_data",
        bytes=0,
        sha256="",
        created_at=1,
        expires_at=None,
        part_of=part_of,
        status="writing",
    )


async def life(store: Store, number: int, fate: random.Random) -> int:
    """Let a file come, perhaps go, each step perhaps twice, as after an outage; return the bytes that stay."""
    record = file(number, TENANTS[number % 2], part_of=fate.choice(["", "", "upload_1"]))
    size = fate.randrange(1, 1000)
    for _ in range(fate.choice([1, 2])):
        await store.files.begin(record)
    if fate.random() < 0.2:
        await store.files.remove(record.tenant, record.id)
        return 0
    for _ in range(fate.choice([1, 2])):
        assert await store.files.finish(replace(record, bytes=size, status="uploaded"))
    if fate.random() < 0.5:
        return size
    for _ in range(fate.choice([1, 2])):
        await store.files.mark(record.tenant, record.id)
    for _ in range(fate.choice([1, 2])):
        await store.files.remove(record.tenant, record.id)
    assert not await store.files.finish(replace(record, bytes=size, status="uploaded"))
    return 0


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_kept_is_what_there_is_however_many_files_come_and_go_at_once(store: Store, seed: int) -> None:
    before = {tenant: await store.files.usage(tenant) for tenant in TENANTS}
    first = 1000 * seed
    sizes = await asyncio.gather(*(life(store, first + n, random.Random(f"{seed} {n}")) for n in range(60)))
    for index, tenant in enumerate(TENANTS):
        assert await store.files.usage(tenant) - before[tenant] == sum(sizes[index::2])
        parts = await store.files.list(
            tenant, part_of="upload_1", purpose=None, after=None, limit=1000, newest_first=False, now=2
        )
        kept = await store.files.usage(tenant)
        assert await store.files.usage(tenant, "upload_1") == kept - sum(part.bytes for part in parts)
        assert await store.files.usage(tenant, "upload_2") == kept
    assert await store.files.usage("nobody") == 0


async def test_what_a_tenant_has_is_not_added_up_from_its_files(store: Store) -> None:
    await store.files.begin(file(9000, "acme"))
    await store.files.finish(replace(file(9000, "acme"), bytes=7, status="uploaded"))
    before = await store.files.usage("acme")
    await store._writer.run(lambda database: database.execute("DELETE FROM stored_files"), "")
    assert await store.files.usage("acme") == before
