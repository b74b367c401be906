#!/usr/bin/env bash
# Check a gateway with curl: smoke.sh PROJECT. It publishes a document, asks, reads and deletes it.
# HEADRACE_URL and HEADRACE_API_KEY are those of .env.example.
set -euo pipefail

project="${1:?usage: smoke.sh PROJECT}"
base="${HEADRACE_URL:?is not set}/v1/projects/$project"
uri="smoke-test-$$.md"

call() { # call METHOD PATH [OPTION…]: print the body, or fail with the problem
    local method="$1" path="$2" answer
    shift 2
    # the key is read from a file descriptor, so that other users don't see it in the process list
    answer="$(curl --silent --show-error --fail-with-body --max-time 60 --request "$method" "$@" \
        --header @<(printf 'Authorization: Bearer %s\n' "${HEADRACE_API_KEY:?is not set}") \
        "$path")" || { echo "failed: $method $path: $answer" >&2; return 1; }
    printf '%s\n' "$answer"
}

expect() { # expect WORD TEXT
    [[ "$2" == *"$1"* ]] || { echo "expected $1 in: $2" >&2; exit 1; }
}

expect '"ok"' "$(call GET "$HEADRACE_URL/readyz")"

published="$(call PUT "$base/document?uri=$uri&title=Smoke" --header 'Prefer: wait=30' \
    --header 'Content-Type: text/markdown' --data-binary $'# Smoke test\n\nThe quokka smiles.\n')"
expect '"outcome":"indexed"' "$published"
token="$(sed -E 's/.*"token":"([^"]+)".*/\1/' <<< "$published")"

expect "\"uri\":\"$uri\"" "$(call POST "$base/ask" --header 'Content-Type: application/json' \
    --data "{\"text\": \"quokka\", \"mode\": \"keyword\", \"min_event\": \"$token\"}")"
expect 'quokka' "$(call GET "$base/text?uri=$uri&lines=3-3")"
expect "\"uri\":\"$uri\"" "$(call GET "$base/documents?prefix=$uri")"
expect '"state":"indexed"' "$(call GET "$base/change?token=$token")"
expect '"chunks_removed":1' "$(call DELETE "$base/document?uri=$uri" --header 'Prefer: wait=30')"

if call GET "$base/document?uri=$uri" 2> /dev/null; then
    echo "$uri is still there" >&2
    exit 1
fi
echo "ok: $HEADRACE_URL"
