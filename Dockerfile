# The server of a model on a machine without a GPU:
#
#   docker build -t regard .
#   docker run --rm -p 8000:8000 -e REGARD_TOKEN=... -v ./runs:/runs:ro regard serve /runs/en-de
#
# Every other command works too, such as `docker run --rm regard mechanisms`.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/regard
COPY constraints.txt requirements.lock pyproject.toml README.md LICENSE ./
COPY docker/requirements.py ./
# First PyTorch's own CPU build; the lock has the hashes of the builds on PyPI, which bring CUDA.
RUN /opt/regard/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch
RUN python requirements.py export images serve > direct.txt && \
  /opt/regard/bin/pip install --no-cache-dir -c requirements.lock -r direct.txt
COPY regard regard
RUN /opt/regard/bin/pip install --no-cache-dir --no-deps .

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
