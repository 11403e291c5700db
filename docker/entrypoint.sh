#!/bin/sh
# `serve` listens on every address of the container, and only with a token; other commands are those of regard.
set -eu
if [ "${1:-}" = serve ]; then
  shift
  if [ -z "${REGARD_TOKEN:-}" ]; then
    echo "regard: the server of a container needs a token: docker run -e REGARD_TOKEN=..." >&2
    exit 2
  fi
  exec regard serve --host 0.0.0.0 --port 8000 --no-open "$@"
fi
exec regard "$@"
