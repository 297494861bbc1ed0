# bash healthcheck.bash MODEL… : exit status 0 if every model has an AVAILABLE version, by the server's own REST status.
# Only bash: the CPU image has no curl, wget or python. REST is asked because the server goes on without it if it can't bind.
port="${REST_PORT:-8501}"
for model in "$@"; do
  exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
  printf 'GET /v1/models/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$model" >&3
  # Reads to the end of the reply; read's own status says only whether it met the delimiter.
  IFS= read -r -d '' -t 2 -u 3 reply
  exec 3>&-
  if [[ "$reply" != *'"AVAILABLE"'* ]]; then
    echo "$model is not AVAILABLE"
    exit 1
  fi
done
