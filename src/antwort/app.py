"""The composition root: from a configuration to a running app."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

import antwort
from antwort.auth import Logins, RateLimiter, build_authenticator
from antwort.backends import ModelBackend
from antwort.backends.build import BackendMetrics, build_routes, choose_models, is_demo
from antwort.concurrency.large_work import LargeWork
from antwort.concurrency.load import ServerLoad
from antwort.concurrency.peers import Letters, Peers
from antwort.concurrency.slots import Queues
from antwort.concurrency.undisturbed import Closing
from antwort.config import (
    AgentConfig,
    BackendConfig,
    Config,
    LoadedConfig,
    ProviderConfig,
    named_paths,
    secret_values,
)
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.context.values import Values
from antwort.documents.parser import DocumentParser, ParsingLimits
from antwort.engine.engine import Engine
from antwort.engine.planning.input_files import InputFiles
from antwort.engine.sealing import Sealer, key_of
from antwort.errors import ConfigError, ServiceUnavailableError, StateError, did_you_mean
from antwort.files import FileLimits, Files, FileSweeper, StoredFiles, open_blobs, why_one_folder
from antwort.functions import Catalogue, FunctionProvider, FunctionRegistry, FunctionSpec, ToolExecutor
from antwort.functions.absent import AbsentProviders, SleepingProviders
from antwort.functions.discovery import (
    default_offer,
    default_providers,
    doubt_about,
    enabled_providers,
    given_at,
    sleeping_providers,
)
from antwort.functions.output import described
from antwort.functions.provider import Services, Signer, Workplace, WorksApart
from antwort.functions.registry import Factory
from antwort.functions.switches import Switches
from antwort.observability import AuditLog, LoopWatchdog, Metrics, MetricsPage, Redactor, tracer
from antwort.observability.metrics import measure_queues, measure_runs
from antwort.outbound import Outbound
from antwort.runs.limits import TenantLimits
from antwort.runs.local import LocalRuns
from antwort.runs.questions import RunQuestions
from antwort.runs.workers import Sharing, WorkerWatch
from antwort.sandbox import Sandbox, SandboxRules
from antwort.sandbox.mounts import MountSpace
from antwort.server import Parts, build_asgi, build_websockets
from antwort.server.batches import BatchFiles, BatchRunner
from antwort.server.gate import BodyBudget
from antwort.server.observation import Refusals
from antwort.server.readiness import ServerState, refuse_unstarted
from antwort.server.sockets.websocket import WebSockets
from antwort.storage.base import OWN_RECORDS, Questions, StoreUnavailableError
from antwort.storage.batches import Batch, Batches
from antwort.storage.forwarding import LimitedRecords
from antwort.storage.identities import WorkerIdentities
from antwort.storage.opening import ProviderStorage, Storage, open_configured, open_on_demand, open_temporary
from antwort.storage.retention import RegularSweep, Sweeper, UnstoredSweeper
from antwort.storage.sql.store import Store
from antwort.storage.streamed_values import ValueLimits
from antwort.storage.urls import database_url, is_postgres, sqlite_path, why_one_process
from antwort.storage.variables import StoredValues
from antwort.wire.requests import decode_create
from antwort.wire.responses import ResponseObject

logger = logging.getLogger(__name__)

CLOSING = 8.0
"""Seconds in which all is closed but the providers, which have a limit of their own."""
_READING = 30.0
"""Seconds that reading a document of a request may take."""


class Antwort:
    """An app: a configuration, its providers, and the server around them. Several can live in one process.

    `functions` and `providers` given in code come before those of the configuration, to which `factories` add types.
    Use it as an async context manager, or hand `asgi()` to any ASGI server, which starts and stops it through the
    lifespan protocol. `peers` are the processes of the server, if there are several that share its database, and
    `mounts` what they share of file systems.
    """

    def __init__(
        self,
        config: Config | LoadedConfig | None = None,
        *,
        functions: Iterable[Callable[..., Any] | FunctionSpec | Mapping[str, Any]] = (),
        providers: Iterable[FunctionProvider] = (),
        factories: Mapping[str, Factory] | None = None,
        backend: str | ModelBackend | None = None,
        executors: Iterable[ToolExecutor] = (),
        peers: Peers | None = None,
        mounts: MountSpace | None = None,
    ) -> None:
        self.loaded = config if isinstance(config, LoadedConfig) else LoadedConfig(config or Config())
        self.config = self.loaded.config
        self._peers = peers or Peers()
        self.metrics = Metrics(antwort.__version__)
        self.state = ServerState()
        self._load = ServerLoad()
        self.queues = self._new_queues()
        self.router, self.state.model, self.model_description = choose_models(self.config, backend, self.queues)
        self._backend_metrics = BackendMetrics(self.metrics, self.router)
        self.outbound = Outbound(self.config.outbound)
        self._is_given = backend is not None
        self.command: Callable[..., list[str]] | None = None
        """How this program is started once more, for providers whose work is done in other processes."""
        self._executors = tuple(executors)
        self._http: ASGIApp | None = None
        self._websockets: WebSockets | None = None
        self._sweepers: Sequence[RegularSweep] = ()
        self._started = False
        self._watch: WorkerWatch | None = None
        self._letters: Letters | None = None
        given = list(providers)
        configured = self._configured_providers(factories or {}, demo=self._is_demo)
        made = [*given, *(provider for provider, _ in configured)]
        self.asleep, self._absent = self._absent_beside({provider.name for provider in made})
        self.redactor = Redactor(_secrets_of(self.config, made))
        self.chain = build_authenticator(self.config)
        self.queues.several = self.chain.has_several_tenants
        self.sandbox = Sandbox(self._sandbox_rules(made), mounts)
        self._tracer = tracer(self.config.observability.tracing, self.redactor)
        self.audit = AuditLog(self.config.observability.audit_file, redactor=self.redactor)
        self._watchdog = LoopWatchdog(self.metrics, self.config.observability.loop_warning, self._load)
        self._refusals = Refusals(self.audit, self.config.observability.audit_refusals)
        try:
            self.registry = self._new_registry()
            self._absent = replace(
                self._absent, provider_off=self.registry.provider_off, tool_off=self.registry.tool_off
            )
            self._register_all(factories or {}, functions, given, configured)
            self.agents = _profiles_of(made) | self.config.agents
            self._check_agents()
            self._check_worker()
            self._alone = self._reasons_for_one_process(made)
        except BaseException:
            self.audit.close()
            raise

    @property
    def conflicts(self) -> Sequence[str]:
        """Names of providers and extensions that several packages bring, and which of them is used."""
        return self._catalogue.conflicts

    @property
    def _is_demo(self) -> bool:
        return not self._is_given and is_demo(self.config)

    def _new_queues(self) -> Queues:
        queues = Queues(most_waiting=self.config.limits.per_tenant.max_waiting)
        measure_queues(self.metrics, queues)
        return queues

    def _absent_beside(self, present: set[str]) -> tuple[SleepingProviders, AbsentProviders]:
        """Return which providers sleep until somebody uses them, and all that are not there."""
        names = {*sleeping_providers(self.config, self._catalogue)} - present
        asleep = SleepingProviders(self._catalogue.declared(names), self._start_late)
        return asleep, AbsentProviders(self._catalogue.disabled(present | names), asleep)

    def _new_registry(self) -> FunctionRegistry:
        functions = self.config.functions
        return FunctionRegistry(
            metrics=self.metrics,
            audit=self.audit,
            redactor=self.redactor,
            tracer=self._tracer,
            strict_names=self.config.strict_names,
            timeout=functions.timeout,
            max_output=functions.max_output,
            concurrency=functions.concurrency,
            threads=functions.threads,
            grace=functions.grace,
            max_hanging=functions.max_hanging,
            spill=functions.spill,
            max_referenced=functions.max_referenced,
            start_timeout=functions.start_timeout,
            close_timeout=functions.close_timeout,
            http=self.outbound,
            queues=self.queues,
        )

    def _configured_providers(
        self, factories: Mapping[str, Factory], *, demo: bool
    ) -> list[tuple[FunctionProvider, ProviderConfig]]:
        """Make the providers that the configuration enables, in its order; `demo` if the demo model will answer."""
        self._catalogue = catalogue = Catalogue(plugins_dir=self.config.plugins_dir, factories=factories)
        for conflict in catalogue.conflicts:
            if self.config.strict_names:
                raise ConfigError(f"{conflict} (strict_names is on)")
            logger.warning("%s", conflict)
        for name, entry in (self.config.providers or {}).items():
            if entry.enabled:  # it is about to be made, with more to say
                continue
            where = given_at(self.loaded, f"providers.{name}")
            try:
                catalogue.find(name, entry.use)
            except ConfigError as error:
                raise ConfigError(error.message, where=where) from None
            if entry.use is not None and (doubt := doubt_about(entry.use)):
                # It may belong to a package that is not installed here because it is not needed here.
                message = f"providers.{name} is disabled, and could not be enabled: {doubt}"
                logger.warning("%s", ConfigError(message, where=where))
        return [
            (catalogue.make(name, entry, self.loaded), entry)
            for name, entry in enabled_providers(self.config, catalogue, demo=demo).items()
        ]

    def _register_all(
        self,
        factories: Mapping[str, Factory],
        functions: Iterable[Callable[..., Any] | FunctionSpec | Mapping[str, Any]],
        given: Iterable[FunctionProvider],
        configured: Iterable[tuple[FunctionProvider, ProviderConfig]],
    ) -> None:
        """Register what was given in code, and the providers of the configuration after it."""
        for name, factory in factories.items():
            self.registry.register_factory(name, factory)
        for one in (*functions, *given):
            self.registry.register(one)
        for provider, entry in configured:
            self._register(provider, entry)

    def _register(self, provider: FunctionProvider, entry: ProviderConfig) -> None:
        """Register a configured provider; whatever is wrong with it is a ConfigError that says where it was enabled."""
        where = given_at(self.loaded, f"providers.{provider.name}")
        try:
            self.registry.register(provider, offer=entry.offer, approval=entry.approval)
        except ConfigError as error:
            raise ConfigError(f"providers.{provider.name}: {error.message}", where=where) from error
        except Exception as error:
            cause = described(error, self.redactor)
            raise ConfigError(f"providers.{provider.name} cannot be registered: {cause}", where=where) from error

    def _check_agents(self) -> None:
        """Refuse an agent that names a function nobody has, or another agent that is not there."""
        self._check_started("engine.run.agents", self.config.engine.run.agents)
        known = [spec.name for spec in self.registry.list()]
        for name, agent in self.config.agents.items():
            self._check_started(f"agents.{name}.agents", agent.agents)
            named = [("functions", function) for function in agent.functions or ()]
            named += [("approval", function) for function in agent.approval or () if isinstance(agent.approval, dict)]
            for setting, function in named:
                if function not in known and not self._executors:
                    key = f"agents.{name}.{setting}"
                    hint = did_you_mean(function, known)
                    raise ConfigError(
                        f"{key}: there is no function '{function}'{hint}", where=given_at(self.loaded, key)
                    )

    def _check_started(self, key: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.agents:
                hint = did_you_mean(name, self.agents)
                raise ConfigError(f"{key}: there is no agent '{name}'{hint}", where=given_at(self.loaded, key))

    def _check_worker(self) -> None:
        """Refuse to leave background responses to others where there can be none."""
        if not self.config.server.with_worker and not is_postgres(database_url(self.config)):
            given = given_at(self.loaded, "server.with_worker")
            raise ConfigError(
                "server.with_worker: background responses can be left to others on PostgreSQL only; set storage.url",
                where=given,
            )

    def _reasons_for_one_process(self, providers: Iterable[FunctionProvider]) -> dict[str, str]:
        """Return what belongs to one process, by its key, with the reason; ConfigError if there are to be several."""
        found = {"storage.url": why_one_process(self.config)}
        found |= {f"providers.{made.name}": getattr(made, "one_process", None) for made in providers}
        reasons = {key: reason for key, reason in found.items() if reason is not None}
        if reasons and self.config.server.workers > 1:
            key, reason = next(iter(reasons.items()))
            given = given_at(self.loaded, "server.workers")
            raise ConfigError(f"server.workers: only one is possible ({key}): {reason}", where=given)
        return reasons

    def _sandbox_rules(self, providers: Iterable[FunctionProvider]) -> SandboxRules:
        """Return what code in the sandbox may not see: all that the configuration names, and itself."""
        own = self.config.sandbox
        private = {key: place for key, place in named_paths(self.config) if not key.startswith("sandbox.")}
        for provider in providers:
            private |= named_paths(getattr(provider, "settings", None), f"providers.{provider.name}")
        if self.loaded.path is not None:
            private["the configuration"] = self.loaded.path
        return SandboxRules(
            private=private,
            visible=own.visible,
            several_tenants=self.chain.has_several_tenants,
            allows_unbounded=own.unbounded == "allow",
            disk_reserve=self.config.storage.disk_reserve,
            processes=self.config.server.workers,
        )

    def claims(self) -> list[Path]:
        """Return the files and folders that only one server at a time may use."""
        url, providers = database_url(self.config), [key for key in self._alone if key != "storage.url"]
        database = [] if is_postgres(url) else [sqlite_path(url)]
        return [*database, *([self.config.data_dir / "providers"] if providers else [])]

    async def start(self, *, recover: bool = True, scratch: bool = False) -> None:
        """Open the store, start every provider, and take up what was left undone; what fails is a ConfigError.

        Whoever opens the store of another process for a moment must not recover: it would take that one's runs away.
        With `scratch`, responses are gone when the app is closed; providers have what they have kept all the same, and
        what they keep now is kept.
        """
        if self._started or self.state.phase != "starting":
            closed = self.state.phase == "stopping"
            raise StateError("the app was closed; make a new one" if closed else "the app was started already")
        self._started = True
        opened = contextlib.AsyncExitStack()
        self._watchdog.start()
        try:
            store = await self._open(opened, recover=recover, scratch=scratch)
            recovered = await self.runs.recover() if recover else 0
            if recover:
                self._start_sweeps(store)
        except BaseException:
            self._watchdog.close()
            closing = Closing(CLOSING)
            await closing.close("providers", self.registry.close(), own_limit=True)
            await closing.close("the store", opened.aclose())
            self._started = False
            closing.end(failed=True)
            raise
        self._opened = opened
        if recovered:
            logger.info("taking up %d background responses", recovered)
        self.state.phase = "running"

    async def _open(self, opened: contextlib.AsyncExitStack, *, recover: bool, scratch: bool) -> Store:
        """Open the store, start the providers on it, and make all that answers; return the store."""
        storage = await opened.enter_async_context(open_temporary() if scratch else open_configured(self.config))
        lasting = await opened.enter_async_context(open_on_demand(self.config)) if scratch else storage
        store = storage.store
        self._letters = await opened.enter_async_context(store.letters())
        self._watch = await self._join(opened, storage) if recover and store.is_shared else None
        limits = TenantLimits(self.config.limits.per_tenant, store.retention, others=self._letters)
        self.values = self._new_values(store, limits)
        opened.callback(self.values.close)
        self.files = self._new_files(storage, limits)
        opened.push_async_callback(self.files.close)
        questions = RunQuestions(store.questions)
        sealer = await asyncio.to_thread(self._sealer)
        given = partial(self._services, values=self.values, questions=questions, signer=sealer, files=self.files)
        await self.registry.start(lambda name: given(name, lasting, limits))
        self.switches = await self._open_switches(store)
        opened.push_async_callback(self.switches.close)
        self.engine = self._new_engine(store, sealer)
        self.runs = LocalRuns(
            self.engine,
            limits,
            self._peers,
            questions,
            self.queues,
            watch=self._watch,
            letters=self._letters,
            works=self.config.server.with_worker,
        )
        self.runs.on_takeover = measure_runs(
            self.metrics, lambda: self.runs.active, lambda: self.runs.waiting, lambda: self.runs.workers
        )
        self.registry.bind(self.values.of, self.runs.agents.of)
        batches = Batches(store.records(OWN_RECORDS), Batch)
        files = BatchFiles(self.files.read, self.files.create, self.files.delete, self.files.list)
        queue = self.queues.named("batches", bounded=False)
        models, keys = self.router.resolve, self.chain.holder
        self._batches = BatchRunner(self.config.engine, batches, files, models, keys, queue=queue)
        parts = self._parts()
        self._http, self._websockets = build_asgi(parts), build_websockets(parts)
        self._peers.open()
        opened.callback(self._peers.close)
        return store

    async def _join(self, opened: contextlib.AsyncExitStack, storage: Storage) -> WorkerWatch:
        """Become one of the workers of a database that other servers may share."""
        identities = WorkerIdentities(self.config.data_dir)
        after = self.config.engine.takeover_after
        works, number = self.config.server.with_worker, self._peers.number
        watch = WorkerWatch(storage.store.workers, identities, number=number, lease=after, works=works)
        opened.push_async_callback(watch.close)
        try:
            await watch.join(await asyncio.to_thread(self._sharing, storage))
        except StoreUnavailableError as error:
            where = given_at(self.loaded, "storage.url")
            raise ConfigError(f"the database cannot be written: {error.message}", where=where) from error
        return watch

    async def _open_switches(self, store: Store) -> Switches:
        """Take out of service what an operator has switched off, from now on as soon as one does."""
        letters = filter(None, (self._peers, self._letters))
        switches = Switches(store.records(OWN_RECORDS), self.registry.switch, self.audit, letters)
        await switches.open()
        if self._watch is not None:
            self._watch.look_also(switches.look)
        return switches

    def _leads(self) -> bool:
        """Tell whether this worker does what one of all on the database has to do."""
        return self._watch is None or self._watch.leads

    def _sharing(self, storage: Storage) -> Sharing:
        """Return what keeps servers with different data folders from sharing a database."""
        local, key = dict(self._alone), self.config.encryption.key
        if (reason := why_one_folder(storage.bucket, self.config.storage.files)) is not None:
            local["storage.s3"] = reason
        if key is None:
            local["encryption.key"] = "it has drawn a key of its own; set the same encryption.key for all servers"
            return Sharing(local)
        # Slow, since others can read it: they shall not find out the key by trying.
        digest = hashlib.scrypt(key.get_secret_value().encode(), salt=b"antwort sharing", n=2**14, r=8, p=1, dklen=16)
        return Sharing(local, {"encryption.key": digest.hex()})

    def _new_engine(self, store: Store, sealer: Sealer) -> Engine:
        return Engine.build(
            executors=[self.registry, *self._executors],
            models=self.router,
            store=store,
            settings=self.config.engine,
            agents=self.agents,
            prompts=self.config.prompts,
            values=self.values,
            spill=self.config.functions.spill,
            absent=self._absent,
            metrics=self.metrics,
            tracer=self._tracer,
            sealer=sealer,
            check_url=self.outbound.check,
            input_files=self._new_input_files,
            queues=self.queues,
            checks=self.registry.checks,
        )

    def _start_sweeps(self, store: Store) -> None:
        settings = self.config.storage
        self._sweepers = (
            Sweeper(store, settings.keep, settings.sweep, self.metrics),
            UnstoredSweeper(store, settings.keep),
            FileSweeper(self.files, settings.sweep),
        )
        for sweeper in self._sweepers:
            sweeper.start(self._leads)
        self._batches.start()

    @contextlib.asynccontextmanager
    async def providers_only(self, *, rehearsal: bool) -> AsyncIterator[None]:
        """Start the providers alone, for a moment: with what they have kept, or with nothing that is kept afterwards.

        In a rehearsal they get records and folders that are thrown away; else what they keep is kept, and a database
        comes about only with that.
        """
        async with open_temporary() if rehearsal else open_on_demand(self.config) as storage:
            try:
                await self.registry.start(lambda name: self._services(name, storage))
                yield
            finally:
                await self.registry.close()

    async def connect_backends(self, backends: Mapping[str, BackendConfig], description: str) -> None:
        """Let model servers that were found answer from now on, in the place of the demo model."""
        self.config = self.config.model_copy(update={"backends": dict(backends)})
        await self.router.replace(build_routes(backends, self.queues))
        self._backend_metrics.show(self.router)
        self.state.model, self.model_description = ", ".join(backends), description
        if self.config.providers is None:
            default = default_providers(self.config, self._catalogue)
            for registration in self.registry.registrations():
                if registration.name in default:
                    self.registry.offer_on_request(registration.name)

    async def _start_late(self, name: str) -> None:
        """Start a provider of the default set that somebody uses now, for the first time."""
        entry = ProviderConfig(enabled=True, offer=default_offer(demo=self._is_demo))
        provider = await asyncio.to_thread(self._catalogue.make, name, entry, self.loaded)
        await self.registry.start_late(provider, offer=entry.offer)
        logger.info("the provider '%s' has been started, as it is used", name)

    async def work_apart(self, *, idle: float | None = None) -> None:
        """Do the work that providers leave to other processes than the server, as long as they want.

        ConfigError if no provider does. The app must not be started, and is closed afterwards as usual.
        """
        for name in self.asleep.names:  # whoever asks for this work uses them
            entry = ProviderConfig(enabled=True)
            self._register(self._catalogue.make(name, entry, self.loaded), entry)
        working = [one.provider for one in self.registry.registrations() if isinstance(one.provider, WorksApart)]
        if not working:
            raise ConfigError("no provider that is enabled has work for a process of its own")
        folder = self.config.data_dir / "providers"
        places = [(one, Workplace(self.outbound, folder / one.name, self.sandbox)) for one in working]
        await asyncio.gather(*(one.work_apart(place, idle=idle) for one, place in places))

    def _services(
        self,
        provider: str,
        storage: ProviderStorage,
        limits: TenantLimits | None = None,
        *,
        values: Values | None = None,
        questions: Questions | None = None,
        signer: Signer | None = None,
        files: Files | None = None,
    ) -> Services:
        records = storage.records(provider)
        if limits is not None and limits.counts_bytes:
            records = LimitedRecords(records, limits.check_room)
        place = storage.folder / provider
        return Services(
            self.outbound,
            records,
            place,
            values,
            questions,
            self.sandbox,
            signer,
            files,
            self.command,
            self.queues,
            self._load,
            partial(self.registry.offer, provider),
        )

    def _new_values(self, store: Store, limits: TenantLimits) -> StoredValues:
        settings = self.config.limits.per_tenant
        room = limits.check_room if limits.counts_bytes else None
        bounds = ValueLimits(settings.max_value_bytes, settings.max_variable_bytes)
        return StoredValues(store.values, bounds, check_room=room)

    def _new_files(self, storage: Storage, limits: TenantLimits) -> StoredFiles:
        settings = self.config.limits.per_tenant
        room = limits.check_room if limits.counts_bytes else None
        bounds = FileLimits(settings.max_file_bytes, settings.max_files_bytes)
        blobs = open_blobs(storage.bucket, storage.blobs, self.config.storage.files)
        return StoredFiles(storage.store.files, blobs, bounds, check_room=room)

    def _new_input_files(self, large_work: LargeWork) -> InputFiles:
        parser = DocumentParser(self.sandbox, ParsingLimits(seconds=_READING))
        check, queue = self.outbound.check, self.queues.named("documents")
        return InputFiles(self.files, self.outbound, check, parser, large_work, queue=queue)

    def _sealer(self) -> Sealer:
        settings = self.config.encryption
        file = self.config.data_dir / "encryption.key"
        given = None if settings.key is None else settings.key.get_secret_value()
        if file.exists():
            key_of(given, file)  # one that is damaged stops the start, not the first request that needs it
        previous = [key.get_secret_value() for key in settings.previous_keys]

        def keys() -> list[str]:
            try:
                return [key_of(given, file), *previous]
            except ConfigError as error:
                logger.error("%s", error)  # noqa: TRY400 - the operator's to mend, no bug of ours
                raise ServiceUnavailableError("The server has no key for encryption. Its log says why.") from error

        return Sealer(keys)

    def _parts(self) -> Parts:
        limits, server = self.config.limits, self.config.server
        self.limiter = RateLimiter(limits.per_key, limits.per_tenant, peers=self._peers, others=self._letters)
        return Parts(
            config=self.config,
            registry=self.registry,
            logins=Logins(self.chain, self.config.auth.max_failures),
            limiter=self.limiter,
            metrics=self.metrics,
            metrics_page=MetricsPage(self.metrics, self._peers),
            refusals=self._refusals,
            state=self.state,
            load=self._load,
            engine=self.engine,
            runs=self.runs,
            router=self.router,
            absent=self._absent,
            redactor=self.redactor,
            switches=self.switches,
            loaded=lambda: replace(self.loaded, config=self.config),
            batches=self._batches,
            bodies=BodyBudget(max(server.max_bodies_bytes, server.max_body_bytes)),
        )

    def stopping(self) -> None:
        """Take note that the server is about to stop: whoever waits for a background run is told to come back.

        WebSocket connections end after the response they are making.
        """
        if self.state.phase == "running":
            self.runs.send_away()
            if self._websockets is not None:
                self._websockets.send_away()

    async def close(self) -> None:
        """Stop taking requests and give everything back.

        Providers have `functions.close_timeout`, all else together a few seconds more; what does not end is left
        behind. Whoever is cancelled meanwhile is in a hurry, and closes the rest in a moment.
        """
        started = self.state.phase == "running"
        self.state.phase = "stopping"
        closing = Closing(CLOSING)
        if started:
            await closing.close("background responses", self.runs.close())
            await closing.close("batches", self._batches.close())
            await closing.close("the sweeps", _all(sweeper.close() for sweeper in self._sweepers))
        await closing.close("providers that start", self.asleep.close())
        await closing.close("providers", self.registry.close(), own_limit=True)
        for executor in self._executors:
            await closing.close("functions of others", executor.close())
        await closing.close("connections to others", self.outbound.close())
        await closing.close("connections to model servers", self.router.close())
        await closing.close("authentication", self.chain.close())
        if started:
            await closing.close("the store", self._opened.aclose())
        self._refusals.close()
        self.audit.close()
        self._tracer.close()
        self._watchdog.close()
        closing.end()

    async def run(
        self, text: str | list[dict[str, Any]], *, tenant: str = ANONYMOUS_TENANT, **options: Any
    ) -> ResponseObject:
        """Make a response in this process; `options` are those of a request, such as `model`, `tools` or `agent`."""
        if self.state.phase != "running":
            raise StateError("the app is not running; use `async with app:`, or `await app.start()` first")
        create = decode_create(msgspec.json.encode({"input": text, **options}))
        plan = await self.engine.plan(create, Context(tenant, scopes=frozenset({"*"})))
        return await self.engine.respond(plan)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def asgi(self) -> "Antwort":
        """Return the ASGI app, which is this object."""
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        await self.connect(scope, receive, send)

    def connect(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. Other servers want a coroutine, which is kept as long as a stream is open."""
        if scope["type"] == "http" and self._http is not None:
            return self._http(scope, receive, send)
        if scope["type"] == "websocket" and self._websockets is not None:
            return self._websockets(scope, receive, send)
        if scope["type"] == "lifespan":
            return self._lifespan(receive, send)
        return refuse_unstarted(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        try:
            await self.start()
        except ConfigError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def _secrets_of(config: Config, providers: Iterable[FunctionProvider]) -> list[str]:
    """Return what no log and no message may say."""
    settings = [config, *(getattr(provider, "settings", None) for provider in providers)]
    return [secret for each in settings for secret in secret_values(each)]


def _profiles_of(providers: Iterable[FunctionProvider]) -> dict[str, AgentConfig]:
    """Return the agents that providers bring along."""
    shipped = [getattr(provider, "profiles", {}) for provider in providers]
    return {name: agent for profiles in shipped for name, agent in profiles.items()}


async def _all(works: Iterable[Awaitable[object]]) -> None:
    """Do several things at the same time, all of them to their end."""
    await asyncio.gather(*works)
