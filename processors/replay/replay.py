"""Replay: builds a new index beside the live one, and switches to it.

read the log → begin or resume → fill → embed → index → catch up → verify → gate → switch

A failure before the switch leaves the live generation unchanged; the next replay resumes the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from events.names import DocumentKey
from processors.replay.builder import Builder, read_batches
from processors.replay.catch_up import FEW_DOCUMENTS, CatchUp, make_live
from processors.replay.dry_run import Estimate, estimate, prices_of
from processors.replay.fold import Fold, Rows
from processors.replay.project_log import EntriesByProject, ProjectLog
from processors.replay.report import GateScores, ReplayReport
from processors.replay.scope import Choice, choose_recipe
from processors.replay.shares import build_shares, shares_of
from processors.replay.start import (
    begin_or_resume,
    check_complete,
    check_models,
    live_generation,
    scope_of,
    store_findings,
    unfinished,
)
from processors.replay.verification import NotSwitched, verify
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import Unavailable, UsageError
from runtime.failpoints import failpoint
from store.documents import collections
from store.documents.bulk import DocumentsInTheWay
from store.documents.contexts import Contexts
from store.generations.catalog import Generation
from store.generations.document_positions import DocumentPosition
from store.postgres.locks import replay_lock
from store.search.statistics import analyze

__all__ = ["Gate", "Replay", "Show"]

MOST_ROUNDS = 100

Gate = Callable[[OperatorTools, str, Generation, Generation], Awaitable[GateScores]]
"""Scores the answers of a project's live generation and of the new one."""

Show = Callable[[str, int, int], None]
"""Called with the current step, how many items are done, and their total (0 if unknown)."""


class Replay:
    """The replay of one project. A stop is too late once ``may_be_stopped`` is false.

    ``entries``: those of the streams, if several projects are replayed. ``processes``: most
    processes that build at once.
    """

    def __init__(
        self,
        tools: OperatorTools,
        project: str,
        choice: Choice,
        gate: Gate | None,
        show: Show,
        entries: EntriesByProject | None = None,
        processes: int = 1,
    ) -> None:
        self._tools = tools
        self._project = project
        self._choice = choice
        self._gate = gate
        self._show = show
        self._entries = entries
        self._processes = processes
        self._has_shared = False
        self.report = ReplayReport(project)
        self.may_be_stopped = True

    async def run(self) -> ReplayReport:
        """Replay, verify and switch.

        Raises:
            UsageError: the options can't be used, or another process replays the project.
            NotSwitched: the new generation differs from the log, or fails the quality gate.
            ConfigurationError, Unavailable: a model or a server fails; the next replay resumes.
        """
        project_id = await self._tools.projects.require(self._project)
        async with replay_lock(self._tools.database, self._project, project_id) as self._lock:
            await self._read()
            await self._begin()
            await self._fill()
            await self._embed()
            await self._index()
            await self._catch_up()
            await self._verify()
            await self._pass_gate()
            await self._switch()
        return self.report

    async def plan(self) -> Estimate:
        """Estimate what ``run`` would embed, and the cost of that. Nothing is written.

        Raises:
            UsageError, NotSwitched, ConfigurationError, Unavailable: see ``run``.
        """
        tools = self._tools
        await self._read()
        unfinished_generation = await unfinished(tools, self._live)
        if unfinished_generation and unfinished_generation.recipe == self._recipe:
            await self._mark_stored(unfinished_generation)
        missing = self._fold.missing()
        rows = missing[~(self._fold.copyable(missing) | self._fold.deleted(missing))]
        return await estimate(
            read_batches(self._log.last_changes(self._fold, rows)),
            len(rows),
            self._project,
            self._recipe,
            tools,
            await prices_of(tools.embedders, self._recipe),
            self._progress("documents looked at"),
        )

    async def _read(self) -> None:
        """Determine recipe and scope, read the log, and check that it has all live versions.

        The change that produced a live version counts even if a worker rejected it after an earlier
        replay had applied it.
        """
        self._live = live = await live_generation(self._tools, self._project)
        async with self._tools.database.scope(live.project_id) as connection:
            chosen = await collections.strategies(connection, live.project_id)
        self._recipe = choose_recipe(live.recipe, self._choice, self._tools.full_name, chosen)
        await check_models(self._tools, live.recipe, self._recipe)
        with self.report.stages("read"):
            left_out = await self._tools.document_positions.ineffective(live)
            self._log = ProjectLog.of(self._project, self._tools, self._entries)
            self._fold = Fold(left_out, searched_event_id=self._choice.since)
            await self._log.read(self._fold)
        self._scope = await scope_of(self._tools, self._choice, self._log, self._fold)
        self._show("reading the log", len(self._fold), len(self._fold))
        self.report.damaged = tuple(self._log.damaged)
        self._members = await self._members_of_scope()
        with self.report.stages("read"):
            await check_complete(live, self._tools, self._log, self._fold, self._has)

    async def _begin(self) -> None:
        """Create a generation, or resume the one that an earlier replay left half built."""
        generation, self.report.resumed = await begin_or_resume(
            self._tools, self._live, self._recipe, self._scope, self._project
        )
        self.report.generation, self.report.former = generation.id, self._live.id
        await self._mark_stored(generation)
        # also if a replay ended before it forgot them
        if self._choice.refresh_context and not self._fold.count_stored():
            await Contexts(self._tools.database).forget(generation, generation.recipe.context)
        self._builder = Builder(
            self._project,
            generation,
            self._fold,
            self._log,
            self._tools,
            guard=self._lock.check,
            cost=self.report.cost,
        )

    async def _fill(self) -> None:
        """Build until the generation has every change that was read from the log."""
        fold = self._fold
        with self.report.stages("build"):
            for _ in range(MOST_ROUNDS):
                missing = fold.missing(self._builder.refused)
                if not len(missing):
                    return
                copyable = fold.copyable(missing)
                await self._builder.copy_documents(
                    self._live, missing[copyable], self._progress("carried over")
                )
                await self._build(fold, missing[~copyable])
                not_copied = missing[fold.copyable(missing)]
                fold.unmark_carried(not_copied)
                fold = await self._exclude_poison()
                if len(missing) > FEW_DOCUMENTS or len(not_copied):
                    await self._log.read_new(fold)
        raise Unavailable("changes arrive faster than they can be indexed", "try again later")

    async def _build(self, fold: Fold, rows: Rows) -> None:
        """Build documents from the log: many new ones by several processes, the others here."""
        progress = self._progress("documents built")
        shares = shares_of(fold, rows[fold.absent(rows)], self._processes)
        if len(shares) > 1:
            self._has_shared = True
            await build_shares(self._builder, fold, shares, progress)
            await self._mark_stored(self._builder.generation)
            rows = rows[fold.outdated(rows)]
        try:
            await self._builder.build(fold, rows, progress)
        except DocumentsInTheWay:
            if not self._has_shared:
                raise
            # Postgres had not ended a transaction of a process that ended
            await self._mark_stored(self._builder.generation)

    async def _embed(self) -> None:
        """Embed the texts that have no vector yet."""
        with self.report.stages("embed"):
            await analyze(self._tools.database, [self._builder.generation.project_id])
            await self._builder.embed(self._progress("texts embedded"))
            await self._builder.write_contexts(self._progress("contexts written"))

    async def _index(self) -> None:
        """Build the search indexes before the generation is used."""
        show = self._progress("vector and keyword indexes")
        show(0, 1)
        with self.report.stages("index"):
            generation = self._builder.generation
            await self._tools.maintenance.tidy_keywords(generation)
            await self._tools.indexes.refresh(generation.project_id, generation.id, wait=True)
        show(1, 1)

    async def _catch_up(self) -> None:
        """Add what was published since the log was read."""
        failpoint("replay.catching_up")
        await self._log.read_new(self._fold)
        await self._fill()
        await self._embed()

    async def _verify(self) -> None:
        generation = self._builder.generation
        failpoint("replay.verifying")
        with self.report.stages("verify"):
            verification = await verify(
                self._tools.database, generation, self._fold, self._builder.refused
            )
        self.report.documents, self.report.chunks = verification.documents, verification.chunks
        self.report.digest = verification.digest
        if not verification.matches_log:
            raise NotSwitched(
                f"generation {generation.id} of {self._project} differs from the log, and was not "
                "made live: {documents}",
                f"run `headrace replay drop {generation.id}`, and replay again",
                differences=verification.differences,
                generation=generation.id,
            )
        failpoint("replay.verified")

    async def _pass_gate(self) -> None:
        if self._gate is None:
            return
        new = self._builder.generation
        with self.report.stages("gate"):
            scores = await self._gate(self._tools, self._project, self._live, new)
        self.report.gate = scores
        if not scores.passed:
            raise NotSwitched(
                f"generation {new.id} of {self._project} was not made live: its nDCG@10 is "
                f"{scores.new:.4f}, and that of the live one is {scores.live:.4f}: "
                f"the drop is larger than {scores.max_drop:g}",
                generation=new.id,
            )

    async def _switch(self) -> None:
        self.may_be_stopped = False
        catch_up = CatchUp(
            self._live, self._log, self._fold, self._tools.document_positions, self._builder
        )
        await store_findings(self._tools, self._builder.generation, self.report.as_json())
        with self.report.stages("switch"):
            await make_live(self._tools.database, catch_up, self._lock, self._progress("caught up"))
        await self._tools.request_vectors(self._project, self._builder.generation)
        self.report.switched = True

    async def _mark_stored(self, generation: Generation) -> None:
        """Mark the documents in the fold that a generation has already."""
        async for stored in self._tools.document_positions.of(generation):
            self._fold.mark_stored(stored.key, stored.rank)

    async def _members_of_scope(self) -> set[DocumentKey]:
        collection = self._scope.collection
        if collection is None:
            return set()
        members = await self._tools.document_positions.members(self._live, collection)
        if not members:
            raise UsageError(f"no document of {self._project} is in the collection {collection!r}")
        return members

    def _has(self, live: DocumentPosition) -> bool:
        """Return whether the fold has the last change of a live document; mark what can be copied.

        A live version can be carried over if it is that of the last change, and out of scope.
        """
        row = self._fold.row_of(live.key)
        if row is None or self._fold.rank(row) < live.rank:
            return False
        if (
            not self._scope.is_all
            and live.log_position == self._fold.log_position(row)
            and not self._scope.covers(live, self._members)
        ):
            self._fold.mark_carried(row)
        return True

    async def _exclude_poison(self) -> Fold:
        """Exclude changes that workers reject too: their documents keep the former version.

        Returns the fold without them.
        """
        log_positions = self._builder.refused.keys() - self._fold.left_out
        if not log_positions:
            return self._fold
        verdicts = await self._tools.document_positions.verdicts(
            self._live.project_id, log_positions
        )
        applied = {at for at, verdict in verdicts.items() if verdict.outcome != "rejected"}
        poison = log_positions - applied
        if poison:
            self._fold = self._builder.stored = Fold(self._fold.left_out | poison)
            await self._log.read(self._fold)
            async for live in self._tools.document_positions.of(self._live):
                self._has(live)
            await self._mark_stored(self._builder.generation)
        return self._fold

    def _progress(self, step: str) -> Callable[[int, int], None]:
        return lambda done, total: self._show(f"{self._project}: {step}", done, total)
