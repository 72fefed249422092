#!/usr/bin/env bash
# with_server: the command's exit code is passed on, the server is there while it runs and gone after it, a machine
# without the server skips, and fails where servers are required.
#
#   with_server_test.sh PROGRAM redis|mariadb
set -uo pipefail
program="$1"
kind="$2"
broken=0

expect() { # <sentence> <wanted> <got>
  if [ "$2" = "$3" ]; then
    echo "ok      $1"
  else
    echo "BROKEN  $1: $3, wanted $2"
    broken=1
  fi
}

port_is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && echo open || echo closed; }
export -f port_is_open

if [ "$kind" = redis ]; then
  output="$(PATH=/nowhere IDEMPOTENCY_REQUIRE_SERVERS=0 "$program" redis -- /bin/true)"
  expect "without the server it skips" 77 "$?"
  expect "loudly" 1 "$(grep -c 'IS NOT INSTALLED' <<<"$output")"
  PATH=/nowhere IDEMPOTENCY_REQUIRE_SERVERS=1 "$program" redis -- /bin/true 2>/dev/null
  expect "where servers are required it fails" 1 "$?"
fi

"$program" "$kind" 2>/dev/null
expect "no command is unusable" 2 "$?"

# The port is the last number in the address.
said="$("$program" "$kind" -- /bin/bash -c 'port=$(grep -oE ":[0-9]+" <<<"$0" | tail -n 1); port=${port#:}
  echo "$port $(port_is_open "$port") $0"; exit 7' 'at {url}')"
code=$?
[ "$code" -eq 77 ] && exit 77
expect "the exit code is passed on" 7 "$code"
read -r port state address <<<"$said"
expect "the server is there while the command runs" open "$state"
expect "the address is filled in" 1 "$(grep -cE '^at (redis|mysql)://[^{]+$' <<<"$address")"
expect "the server is gone after it" closed "$(port_is_open "$port")"

"$program" "$kind" -- /bin/bash -c 'kill -KILL $$'
expect "a command that was killed fails" 137 "$?"
"$program" "$kind" -- /bin/bash -c 'kill -TERM $PPID; sleep 30'
expect "a signal ends the command" 143 "$?"
exit "$broken"
