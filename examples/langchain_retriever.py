"""A LangChain retriever over Headrace: ``langchain_retriever.py PROJECT QUESTION``.

Needs the packages headrace-client and langchain-core.
"""

from __future__ import annotations

import sys

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from headrace_client import AsyncHeadrace, Filters, Headrace, QueryAnswer


class HeadraceRetriever(BaseRetriever):
    """Retriever of chunks of one project, each with its citation in the metadata.

    Without ``url`` and ``api_key``, those of the environment or of a running ``headrace up`` apply.
    """

    project: str
    url: str | None = None
    api_key: str | None = None
    limit: int = 4
    filters: Filters = Filters()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        with Headrace(self.url, self.api_key) as headrace:
            project = headrace.project(self.project)
            return _documents(project.ask(query, limit=self.limit, filters=self.filters))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        async with AsyncHeadrace(self.url, self.api_key) as headrace:
            project = headrace.project(self.project)
            return _documents(await project.ask(query, limit=self.limit, filters=self.filters))


def _documents(answer: QueryAnswer) -> list[Document]:
    return [
        Document(
            result.content,
            id=str(result.chunk_id),
            metadata={
                **result.metadata,
                "source": str(result.citation),
                "uri": result.citation.uri,
                "start_line": result.citation.start_line,
                "end_line": result.citation.end_line,
                "title": result.title,
                "score": result.scores.fused,
            },
        )
        for result in answer
    ]


if __name__ == "__main__":
    for document in HeadraceRetriever(project=sys.argv[1]).invoke(" ".join(sys.argv[2:])):
        print(f"{document.metadata['source']}\n{document.page_content}\n")
