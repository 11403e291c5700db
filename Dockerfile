# The server of a model on a machine without a GPU:
#
#   docker build -t regard .
#   docker run --rm -p 8000:8000 -e REGARD_TOKEN=... -v ./runs:/runs:ro regard serve /runs/en-de
#
# Every other command works too, such as `docker run --rm regard mechanisms`.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/regard
COPY constraints.txt docker/requirements.lock ./
# First PyTorch's own CPU build, which the lock leaves out: those on PyPI bring CUDA.
RUN /opt/regard/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch
RUN /opt/regard/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY regard regard
RUN /opt/regard/bin/pip install --no-cache-dir --no-deps . && /opt/regard/bin/pip check

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 regard
COPY --from=build /opt/regard /opt/regard
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/entrypoint
ENV PATH=/opt/regard/bin:$PATH PYTHONUNBUFFERED=1
USER regard
WORKDIR /home/regard
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/v1/health/live', timeout=4)"]
ENTRYPOINT ["entrypoint"]
CMD ["serve"]
