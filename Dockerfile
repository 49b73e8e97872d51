# Targets: unstarve (the command line), perf (with linux-perf), webapp (`unstarve serve`, the default).
# docker build --target unstarve -t unstarve . && docker run --rm unstarve --version
FROM python:3.12.11-slim-bookworm AS build
# PyTorch's CPU index brings torch without CUDA, several GB smaller; without one, pip chooses the build.
ARG TORCH_INDEX
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Debian removes versions that it has fixed, so a pinned one would soon be missing.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libjpeg62-turbo-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/unstarve
ENV PATH=/opt/unstarve/bin:$PATH
# Torch is large and changes seldom: a layer of its own.
COPY constraints.txt /source/
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c /source/constraints.txt torch
COPY pyproject.toml CMakeLists.txt README.md LICENSE /source/
COPY licenses /source/licenses
COPY native /source/native
COPY src /source/src
RUN pip wheel --no-deps -w /wheels /source \
    && set -- /wheels/*.whl \
    && pip install -c /source/constraints.txt "$1[images,plot,tune,web]" \
    && python -c 'import unstarve._native'

FROM python:3.12.11-slim-bookworm AS unstarve
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libjpeg62-turbo \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home unstarve \
    && install -d -o unstarve -g unstarve /runs
COPY --from=build /opt/unstarve /opt/unstarve
ENV PATH=/opt/unstarve/bin:$PATH PYTHONUNBUFFERED=1
RUN python -c 'import unstarve._native'
USER 10001
WORKDIR /runs
ENTRYPOINT ["unstarve"]
CMD ["--help"]

# A user who is not root gets a capability only through the file that is run; it must be among the container's own.
FROM unstarve AS perf
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libcap2-bin linux-perf \
    && rm -rf /var/lib/apt/lists/* \
    && setcap cap_perfmon=ep /usr/bin/perf
USER 10001

FROM unstarve AS webapp
EXPOSE 5000
# The style sheet holds no data, so that it needs no token.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 5000, timeout=4); c.request('GET', '/app.css'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["serve", "--host", "0.0.0.0"]
