"""A LlamaIndex retriever over Headrace: ``llamaindex_retriever.py PROJECT QUESTION``.

Needs the packages headrace-client and llama-index-core.
"""

from __future__ import annotations

import sys

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from headrace_client import AsyncHeadrace, Filters, Headrace, QueryAnswer


class HeadraceRetriever(BaseRetriever):
    """Retriever of chunks of one project, each with its citation in the metadata.

    Without ``url`` and ``api_key``, those of the environment or of a running ``headrace up`` apply.
    """

    def __init__(
        self,
        project: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        limit: int = 4,
        filters: Filters | None = None,
    ) -> None:
        super().__init__()
        self._project = project
        self._url = url
        self._api_key = api_key
        self._limit = limit
        self._filters = filters

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        with Headrace(self._url, self._api_key) as headrace:
            project = headrace.project(self._project)
            return _nodes(
                project.ask(query_bundle.query_str, limit=self._limit, filters=self._filters)
            )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        async with AsyncHeadrace(self._url, self._api_key) as headrace:
            project = headrace.project(self._project)
            return _nodes(
                await project.ask(query_bundle.query_str, limit=self._limit, filters=self._filters)
            )


def _nodes(answer: QueryAnswer) -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(
                id_=str(result.chunk_id),
                text=result.content,
                metadata={
                    **result.metadata,
                    "source": str(result.citation),
                    "uri": result.citation.uri,
                    "start_line": result.citation.start_line,
                    "end_line": result.citation.end_line,
                    "title": result.title,
                },
            ),
            score=result.scores.fused,
        )
        for result in answer
    ]


if __name__ == "__main__":
    for node in HeadraceRetriever(sys.argv[1]).retrieve(" ".join(sys.argv[2:])):
        print(f"{node.metadata['source']}\n{node.text}\n")
