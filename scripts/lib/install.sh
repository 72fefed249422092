# install_missing <package>...: installs those Debian packages that are not there yet. Sourced.

package_is_installed() {
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "Packages are missing; run this as root or install sudo." >&2
    return 1
  fi
}

# without_services <command>...: runs it as root while no package may start a service: tests start servers of their own.
without_services() (
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
  fi
  as_root "$@"
)

install_missing() {
  if ! command -v apt-get >/dev/null; then
    echo "This is not Debian or Ubuntu: install what corresponds to: $*" >&2
    return 0
  fi
  local package missing=()
  for package in "$@"; do
    package_is_installed "$package" || missing+=("$package")
  done
  if [ "${#missing[@]}" -eq 0 ]; then
    return 0
  fi

  local log
  log="$(mktemp)"
  echo "Installing: ${missing[*]}"
  if ! as_root apt-get update -qq >"$log" 2>&1 ||
    ! without_services env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    echo "Installing packages failed." >&2
    return 1
  fi
  rm -f "$log"
}
