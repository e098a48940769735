# ddh and its web service, on a processor alone.
#
#   docker build -t ddh .
#   alias in-docker='docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data"'
#   in-docker ddh add photos/ --index photos.index
#   in-docker -p 127.0.0.1:8080:8080 -e DDH_TOKEN="$TOKEN" ddh
#
# The last one serves /data/photos.index; without a token of 16 characters or more it does not start.

FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/ddh
ENV PATH=/opt/ddh/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN pip install -c constraints.txt ".[serve,photos,postgres,milvus,parquet]"

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 ddh \
    && mkdir --mode=1777 /cache \
    && install --directory --owner=ddh --group=ddh /data
COPY --from=build /opt/ddh /opt/ddh
ENV PATH=/opt/ddh/bin:$PATH DDH_CACHE=/cache PYTHONUNBUFFERED=1
USER ddh
WORKDIR /data
VOLUME ["/data", "/cache"]
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["ddh"]
CMD ["serve", "photos.index", "--host", "0.0.0.0", "--port", "8080"]
