# The broker alone, as an ordinary user, on /var/lib/kohort.
#
#   docker build -t kohort .
#   docker run -p 127.0.0.1:9092:9092 -v kohort-data:/var/lib/kohort kohort
#
# Clients are not authenticated: without 127.0.0.1, every machine that reaches this one could read and write
# all records (docs/securing-it.md).
#
# Settings are KAFKA_ and KOHORT_ variables, or arguments: docs/configuration.md.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/kohort
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY accelerated accelerated
COPY kohort kohort
COPY scripts scripts
RUN /opt/kohort/bin/pip install --no-cache-dir --constraint constraints.txt . \
    && /opt/kohort/bin/python -m compileall -q /opt/kohort

FROM python:3.13-slim
RUN useradd --system --uid 9092 --no-create-home kohort \
    && install --directory --owner kohort --group kohort --mode 0700 /var/lib/kohort
COPY --from=build /opt/kohort /opt/kohort
# Listeners on localhost would be unreachable from outside the container; published ports limit access.
ENV PATH=/opt/kohort/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LISTENERS=PLAINTEXT://:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/kohort \
    KOHORT_METRICS_HOST=0.0.0.0 \
    KOHORT_CONSOLE_HOST=0.0.0.0
USER kohort
VOLUME /var/lib/kohort
EXPOSE 9092 9308 9328
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-m", "kohort.broker.http.probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["kohort", "serve"]
