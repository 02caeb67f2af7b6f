# syntax=docker/dockerfile:1
# Two images:  docker build --target service -t stelae-service .     the tablet server
#              docker build --target builder -t stelae-builder .     Spark, to build tables; the whole command line
# docs/deploy.md says how to run them. Debian 12 is the release that carries Java 17.
ARG PYTHON=3.11-slim-bookworm

# What both run on: an init (it forwards SIGTERM and reaps what Spark leaves), a user, the two folders that are written.
FROM python:${PYTHON} AS base
# Debian keeps only the newest version of a package, so a pinned one stops building.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --home-dir /var/lib/stelae --shell /usr/sbin/nologin stelae \
 && install --directory --owner=stelae --group=stelae /warehouse /var/lib/stelae
ENV PATH=/opt/stelae/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STELAE_WAREHOUSE=/warehouse
WORKDIR /var/lib/stelae
ENTRYPOINT ["tini", "--", "stelae"]

# The project without its packages: installing it brings what it depends on, and changes only when pyproject.toml does.
FROM python:${PYTHON} AS dependencies
WORKDIR /src
COPY pyproject.toml ./
RUN touch README.md LICENSE && python -m venv --without-pip /opt/stelae

FROM dependencies AS service-dependencies
RUN --mount=type=cache,target=/root/.cache/pip pip --python /opt/stelae/bin/python install '/src[service]'

FROM dependencies AS builder-dependencies
RUN --mount=type=cache,target=/root/.cache/pip pip --python /opt/stelae/bin/python install '/src[builder]'

# The project itself, built once for both.
FROM dependencies AS wheel
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip wheel --no-deps --wheel-dir /wheels .

FROM base AS builder
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=builder-dependencies /opt/stelae /opt/stelae
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/stelae/bin/python install --no-cache-dir --no-deps --force-reinstall /wheels/*.whl
# Spark spills to disk, not to /tmp, which is often memory.
ENV SPARK_LOCAL_DIRS=/var/lib/stelae TMPDIR=/var/lib/stelae
USER 10001:10001
VOLUME ["/warehouse", "/var/lib/stelae"]
CMD ["--help"]

FROM base AS service
COPY --from=service-dependencies /opt/stelae /opt/stelae
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/stelae/bin/python install --no-cache-dir --no-deps --force-reinstall /wheels/*.whl
USER 10001:10001
VOLUME ["/warehouse", "/var/lib/stelae"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/livez', timeout=3)"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--data-folder", "/var/lib/stelae"]
