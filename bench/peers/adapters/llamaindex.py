"""LlamaIndex: an ingestion pipeline with a docstore in Postgres, and hybrid ``PGVectorStore``.

The sources are the pages "Ingestion Pipeline + Document Management" and "Postgres Vector Store" of
https://developers.llamaindex.ai/python. The second says that ``QueryFusionRetriever`` often ranks
better than the store's own hybrid search, so that it is measured too, as ``fusion``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import CodeSplitter, SentenceSplitter
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.kvstore.postgres import PostgresKVStore
from llama_index.vector_stores.postgres import PGVectorStore

from bench.peers.protocol import DIMENSIONS, Embedder, Gate, Peer, files_of, serve

_URI = "file_path"
_TOKENS = 256
_OVERLAP_TOKENS = 50
_BATCH = 100
_MODES = {
    "hybrid": VectorStoreQueryMode.HYBRID,
    "vector": VectorStoreQueryMode.DEFAULT,
    "keyword": VectorStoreQueryMode.TEXT_SEARCH,
}


class _Model(BaseEmbedding):
    """The common embedder by LlamaIndex's interface."""

    embedder: Any = None

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self.embedder.question(query).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self.embedder.documents(texts).tolist()
        return vectors


class _Splitter(TransformComponent):
    """Cuts Python by syntax, and all else by sentences."""

    code: Any = None
    prose: Any = None

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        chunks: list[BaseNode] = []
        for node in nodes:
            is_code = node.metadata[_URI].endswith(".py")
            chunks += self._code(node) if is_code else self.prose.get_nodes_from_documents([node])
        return chunks

    def _code(self, node: BaseNode) -> Any:
        try:
            return self.code.get_nodes_from_documents([node])
        except ValueError:  # the file has a fault of syntax
            return self.prose.get_nodes_from_documents([node])


class LlamaIndex(Peer):
    """Synchronises by ``DocstoreStrategy.UPSERTS_AND_DELETE``."""

    modes = ("hybrid", "fusion", "vector", "keyword")
    packages = (
        "llama-index-core",
        "llama-index-vector-stores-postgres",
        "llama-index-storage-docstore-postgres",
    )
    chunks = "SELECT metadata_->>'file_path', text FROM data_chunks"

    def connect(self, home: Path, url: str | None) -> str:
        assert url is not None
        del home
        urls = {
            "connection_string": url.replace("postgresql://", "postgresql+psycopg2://", 1),
            "async_connection_string": url.replace("postgresql://", "postgresql+asyncpg://", 1),
        }
        place = {"schema_name": "public", "use_jsonb": True}
        self._vectors = PGVectorStore(
            table_name="chunks",
            embed_dim=DIMENSIONS,
            hybrid_search=True,
            text_search_config="english",
            hnsw_kwargs={
                "hnsw_m": 16,
                "hnsw_ef_construction": 64,
                "hnsw_ef_search": 40,
                "hnsw_dist_method": "vector_cosine_ops",
            },
            **urls,
            **place,
        )
        self._vectors._initialize()
        self._docstore = PostgresDocumentStore(
            postgres_kvstore=PostgresKVStore(table_name="docstore", **urls, **place)
        )
        return url

    def sync(self, directory: str) -> None:
        pipeline = self._pipeline(self.embedder, DocstoreStrategy.UPSERTS_AND_DELETE)
        pipeline.run(documents=_documents(files_of(directory)))

    def build(self) -> None:
        """Do nothing: the store creates its indexes with its table."""

    def find(self, text: str, mode: str, limit: int, model: str) -> list[str]:
        embedder = Embedder(model, self.channel)
        if mode == "fusion":
            nodes = [scored.node for scored in self._fusion(embedder, limit).retrieve(text)]
        else:
            query = VectorStoreQuery(
                query_str=text,
                query_embedding=embedder.question(text).tolist(),
                similarity_top_k=limit,
                sparse_top_k=limit,
                mode=_MODES[mode],
            )
            nodes = self._vectors.query(query).nodes[:limit]
        return [node.metadata[_URI] for node in nodes]

    def race(self, directory: str, uri: str, old: str, new: str) -> None:
        del directory
        gate = Gate()
        slow = self._pipeline(
            Embedder(self.embedder.model, self.channel, gate=gate), DocstoreStrategy.UPSERTS
        )
        quick = self._pipeline(self.embedder, DocstoreStrategy.UPSERTS)
        gate.overtake(
            lambda: slow.run(documents=_documents([(uri, old)])),
            lambda: quick.run(documents=_documents([(uri, new)])),
        )

    def remodel(self, directory: str) -> None:
        """Delete all documents, and index them again: the pipeline does not notice a new model."""
        for uri in self._docstore.get_all_document_hashes().values():
            self._docstore.delete_document(uri, raise_error=False)
            self._vectors.delete(uri)
        self.sync(directory)

    def embedded_text(self, uri: str, text: str) -> str:
        """Return the text with its metadata before it, as nodes are embedded by default."""
        return f"{_URI}: {uri}\n\n{text}"

    def _pipeline(self, embedder: Embedder, strategy: DocstoreStrategy) -> IngestionPipeline:
        splitter = _Splitter(
            code=CodeSplitter(language="python"),
            prose=SentenceSplitter(chunk_size=_TOKENS, chunk_overlap=_OVERLAP_TOKENS),
        )
        return IngestionPipeline(
            transformations=[splitter, _Model(embedder=embedder, embed_batch_size=_BATCH)],
            vector_store=self._vectors,
            docstore=self._docstore,
            docstore_strategy=strategy,
            disable_cache=True,
        )

    def _fusion(self, embedder: Embedder, limit: int) -> QueryFusionRetriever:
        index = VectorStoreIndex.from_vector_store(
            self._vectors, embed_model=_Model(embedder=embedder)
        )
        retrievers = [
            index.as_retriever(vector_store_query_mode=mode, similarity_top_k=limit)
            for mode in ("default", "sparse")
        ]
        return QueryFusionRetriever(
            retrievers,
            llm=MockLLM(),
            similarity_top_k=limit,
            num_queries=1,
            mode=FUSION_MODES.RECIPROCAL_RANK,
            use_async=False,
        )


def _documents(files: Iterable[tuple[str, str]]) -> list[Document]:
    return [Document(text=text, doc_id=uri, metadata={_URI: uri}) for uri, text in files]


if __name__ == "__main__":
    serve(LlamaIndex)
