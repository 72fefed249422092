#!/usr/bin/env bash
# Runs the storms and the scenarios with programs that are built already.
#
#   demo.sh FOLDER_OF_THE_PROGRAMS [URL]
#
# With an address (mysql://..., redis://...) the service keeps its records there: use a database of their own.
# DEMO_QUICK=1: a smaller storm, in less than a minute. DEMO_SEED=N: another mixture of requests.
set -euo pipefail
programs="$(cd "$1" && pwd)"
store=()
if [ -n "${2:-}" ]; then
  store=(--store "$2")
fi
folder="$(mktemp -d)"
running=

finish() {
  if [ -n "$running" ]; then
    kill "$running" 2>/dev/null || true # its own servers end with it
    wait "$running" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a program with a bound on its time; a signal to this script ends it at once.
run() { # <seconds> <program> <argument>...
  local seconds="$1" program="$2" code=0
  shift 2
  timeout --kill-after=5 "$seconds" "$programs/$program" "$@" &
  running=$!
  wait "$running" || code=$?
  running=
  if [ "$code" -eq 124 ]; then
    echo "$program took more than $seconds seconds." >&2
  fi
  return "$code"
}

if [ "${DEMO_QUICK:-0}" = 1 ]; then
  size=(--payments 400 --transfers 100 --kills 2 --seconds 60)
else
  size=(--payments 3000 --transfers 1000 --kills 5 --seconds 150)
fi

storm() { # on|off
  mkdir "$folder/$1"
  run 240 storm --service "$programs/payment_service" --bank "$programs/bank" --guard "$1" \
    --folder "$folder/$1" --report "$folder/$1.json" --seed "${DEMO_SEED:-1}" "${size[@]}" "${store[@]}"
}

code=0
storm on
echo
storm off
run 10 storm_summary --with "$folder/on.json" --without "$folder/off.json" || code=1
echo
run 60 callback_twice --service "$programs/payment_service" --folder "$folder/callback" \
  "${store[@]}" || code=1

for accident in stock_oversold one_token; do
  echo
  run 60 "$accident" --folder "$folder/$accident" || code=1
done

echo
if [ "$code" -eq 0 ]; then
  echo "The demo ends well."
else
  echo "The demo FAILED: see the lines with BROKEN."
fi
exit "$code"
