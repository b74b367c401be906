# One image for every process of Headrace: `migrate`, `worker`, and the command line.
FROM python:3.12-slim AS build
WORKDIR /opt/headrace
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
COPY Makefile pyproject.toml requirements.lock README.md ./
COPY bench bench
COPY clients/python clients/python
COPY content content
COPY events events
COPY gateway gateway
COPY headrace headrace
COPY migrations migrations
COPY processors processors
COPY runtime runtime
COPY sources sources
COPY store store
RUN make install

FROM python:3.12-slim
# `headrace sync` reads repositories with git
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home headrace \
    && install --directory --owner=headrace /archive
COPY --from=build /opt/headrace /opt/headrace
USER headrace
ENV PATH=/opt/headrace/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEADRACE_LOG_FORMAT=json \
    HEADRACE_LOG_LEVEL=info
STOPSIGNAL SIGTERM
ENTRYPOINT ["headrace"]
CMD ["worker"]
