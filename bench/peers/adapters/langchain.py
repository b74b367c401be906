"""LangChain: its text splitters, indexing API with a record manager, and hybrid ``PGVectorStore``.

The sources are https://github.com/langchain-ai/langchain-postgres, in it
``examples/pg_vectorstore_how_to.ipynb``, and the docstring of ``langchain_core.indexing.index``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import psycopg
from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import index
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from langchain_postgres.v2.indexes import HNSWIndex
from langchain_text_splitters import Language, RecursiveCharacterTextSplitter

from bench.peers.protocol import DIMENSIONS, Embedder, Gate, Peer, files_of, serve

_TABLE = "chunks"
_URI = "source"
_CHARACTERS = 1000
_OVERLAP = 200
_CANDIDATES = 50
_BATCH = 100
_LANGUAGES = {".py": Language.PYTHON, ".md": Language.MARKDOWN}


class _Model(Embeddings):
    """The common embedder by LangChain's interface."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embedder.documents(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._embedder.question(text).tolist()
        return vector


class LangChain(Peer):
    """Synchronises by ``index`` with ``cleanup="full"``; asks by reciprocal rank fusion."""

    modes = ("hybrid", "vector")
    packages = ("langchain-core", "langchain-postgres", "langchain-text-splitters")
    chunks = "SELECT source, content FROM chunks"

    def connect(self, home: Path, url: str | None) -> str:
        assert url is not None
        del home
        self._engine = PGEngine.from_connection_string(_with_driver(url, "asyncpg"))
        if not _has_table(url):
            self._engine.init_vectorstore_table(
                _TABLE,
                DIMENSIONS,
                metadata_columns=[Column(_URI, "TEXT")],
                hybrid_search_config=_hybrid(""),
            )
        self._records = SQLRecordManager("bench", db_url=_with_driver(url, "psycopg"))
        self._records.create_schema()
        self._store = self._open_store(self.embedder)
        return url

    def sync(self, directory: str) -> None:
        self._index(_documents(files_of(directory)), self._store, "full")

    def build(self) -> None:
        self._store.apply_vector_index(HNSWIndex())
        self._store.apply_hybrid_search_index()

    def find(self, text: str, mode: str, limit: int, model: str) -> list[str]:
        if mode == "hybrid":
            # a config for each question, because a store keeps the words of its first question
            documents = self._store.similarity_search(
                text, k=limit, hybrid_search_config=_hybrid(text)
            )
        else:
            vector = Embedder(model, self.channel).question(text).tolist()
            documents = self._store.similarity_search_by_vector(
                vector, k=limit, hybrid_search_config=None
            )
        return [document.metadata[_URI] for document in documents]

    def race(self, directory: str, uri: str, old: str, new: str) -> None:
        del directory
        gate = Gate()
        slow = self._open_store(Embedder(self.embedder.model, self.channel, gate=gate))
        gate.overtake(
            lambda: self._index(_documents([(uri, old)]), slow, "incremental"),
            lambda: self._index(_documents([(uri, new)]), self._store, "incremental"),
        )

    def remodel(self, directory: str) -> None:
        """Index all again with ``force_update``, as the documentation of ``index`` says."""
        self._index(_documents(files_of(directory)), self._store, "full", force_update=True)

    def _open_store(self, embedder: Embedder) -> Any:
        return PGVectorStore.create_sync(
            engine=self._engine,
            table_name=_TABLE,
            embedding_service=_Model(embedder),
            metadata_columns=[_URI],
            hybrid_search_config=_hybrid(""),
        )

    def _index(
        self, documents: Iterator[Document], store: Any, cleanup: Any, *, force_update: bool = False
    ) -> None:
        index(
            documents,
            self._records,
            store,
            batch_size=_BATCH,
            cleanup=cleanup,
            source_id_key=_URI,
            force_update=force_update,
        )


def _with_driver(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


def _has_table(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT to_regclass(%s)", [_TABLE]).fetchone()
    return row is not None and row[0] is not None


def _hybrid(question: str) -> HybridSearchConfig:
    return HybridSearchConfig(
        tsv_column="content_tsv",
        fts_query=question,
        fusion_function=reciprocal_rank_fusion,
        primary_top_k=_CANDIDATES,
        secondary_top_k=_CANDIDATES,
    )


def _documents(files: Iterable[tuple[str, str]]) -> Iterator[Document]:
    """Cut files by the splitter of their language."""
    for uri, text in files:
        language = _LANGUAGES.get(PurePosixPath(uri).suffix)
        sizes = {"chunk_size": _CHARACTERS, "chunk_overlap": _OVERLAP}
        splitter = (
            RecursiveCharacterTextSplitter.from_language(language, **sizes)
            if language
            else RecursiveCharacterTextSplitter(**sizes)
        )
        yield from splitter.split_documents([Document(page_content=text, metadata={_URI: uri})])


if __name__ == "__main__":
    serve(LangChain)
