# Configure, build and test with as little noise as possible. Sourced; needs $root.

jobs="${JOBS:-$(nproc)}"
# Most tests that take long wait for servers and clocks.
test_jobs="${TEST_JOBS:-$((jobs + 1))}"

configure_and_build() { # <preset> [cmake configure argument...]; $build_targets: only these
  local preset="$1" log
  shift
  log="$root/build/$preset.configure.log"
  mkdir -p "$root/build"
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  if ! (cd "$root" && cmake --preset "$preset" "${launcher[@]}" "$@") >"$log" 2>&1; then
    cat "$log"
    return 1
  fi
  local targets=()
  read -r -a targets <<<"${build_targets:-all}"
  cmake --build "$root/build/$preset" --parallel "$jobs" --target "${targets[@]}"
}

# Runs ctest and fails also when a test was skipped or not run.
run_tests() { # <preset> [ctest argument...]
  local preset="$1" log code=0
  shift
  log="$root/build/$preset.ctest.log"
  ctest --test-dir "$root/build/$preset" --parallel "$test_jobs" --output-on-failure \
    --no-tests=error "$@" 2>&1 | tee "$log" | compress_passes
  code="${PIPESTATUS[0]}"
  if grep -qE '\*\*\*(Skipped|Not Run)|\(Disabled\)|\((Skipped|Not Run)\)' "$log"; then
    echo "Tests were skipped or not run; see above." >&2
    code=1
  fi
  return "$code"
}

# One line a hundred passed tests; everything else as it is.
compress_passes() {
  awk '/^ *Start +[0-9]+:/ { next }
       / Test +#[0-9]+: .* Passed / { if (++passed % 100 == 0) { print passed " tests passed so far"; fflush() } next }
       { print; fflush() }'
}

# "<n> passed, <n> failed" of the last run.
test_summary() { # <preset>
  local log="$root/build/$1.ctest.log" passed failed
  passed="$(grep -cE ' Test +#[0-9]+: .* Passed ' "$log" || true)"
  failed="$(grep -cE ' Test +#[0-9]+: .*\*\*\*' "$log" || true)"
  echo "$passed passed, $failed failed"
}
