#!/usr/bin/env bash
# Installs a built binary as a systemd service:
#
#   sudo ./install.sh target/release/streaming-hub
#   sudo ./install.sh --uninstall
#
# It makes the user streaming-hub, /etc/streaming-hub (settings, and a new KEK where there is none), and the unit, and starts nothing.
# Run again it replaces the binary and the unit, and leaves settings, KEK and store as they are. It fetches nothing. --uninstall stops
# the service and takes away binary and unit; what cannot be had again (store, settings, KEK) it leaves, and says where.
set -euo pipefail
umask 077

die() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

# Whether systemd runs this machine; where it does not (a container, a build of an image) nothing can be told to it.
systemd_runs() {
  [[ -d /run/systemd/system ]]
}

uninstall() {
  local prefix=$1 left=()
  [[ -n $prefix || $EUID -eq 0 ]] || die "this needs root"
  if [[ -z $prefix ]] && systemd_runs; then
    systemctl disable --now streaming-hub 2>/dev/null || true
  fi
  rm -f "$prefix/usr/local/bin/streaming-hub" "$prefix/etc/systemd/system/streaming-hub.service"
  if [[ -z $prefix ]] && systemd_runs; then
    systemctl daemon-reload
  fi
  for place in /var/lib/streaming-hub /etc/streaming-hub; do
    [[ -e $prefix$place ]] && left+=("$prefix$place")
  done
  printf 'Binary and unit are removed.\n'
  if ((${#left[@]} > 0)); then
    printf 'Left, since nobody can give it back: %s. If it is no longer needed: rm -r %s; userdel streaming-hub\n' "${left[*]}" "${left[*]}"
  fi
}

main() {
  local binary=${1:-} here prefix=${DESTDIR:-}
  if [[ $binary == --uninstall ]]; then
    uninstall "$prefix"
    return
  fi
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  [[ -n $binary ]] || die "usage: $0 PATH-OF-BINARY"
  [[ -x $binary && ! -d $binary ]] || die "$binary is not an executable file; build it with: cargo build --release"
  # With DESTDIR all goes there, and no user is made: for packages and for trying it out.
  [[ -n $prefix || $EUID -eq 0 ]] || die "this needs root"
  "$binary" --version >/dev/null || die "$binary does not run here"

  if [[ -z $prefix ]] && ! id -u streaming-hub >/dev/null 2>&1; then
    useradd --system --no-create-home --home-dir /var/lib/streaming-hub --shell /usr/sbin/nologin streaming-hub
  fi

  # Beside its place and then renamed: whoever starts it meanwhile gets the old one or the new one, whole.
  install -D -m 0755 "$binary" "$prefix/usr/local/bin/.streaming-hub.new"
  mv -T "$prefix/usr/local/bin/.streaming-hub.new" "$prefix/usr/local/bin/streaming-hub"
  install -D -m 0644 "$here/systemd/streaming-hub.service" "$prefix/etc/systemd/system/streaming-hub.service"

  # The service may read what is put there for it (a password file); others may not look.
  install -d -m 0750 "$prefix/etc/streaming-hub"
  [[ -n $prefix ]] || chgrp streaming-hub "$prefix/etc/streaming-hub"
  local settings=$prefix/etc/streaming-hub/streaming-hub.env kek=$prefix/etc/streaming-hub/kek
  [[ -e $settings ]] || install -m 0640 "$here/systemd/streaming-hub.env" "$settings"
  if [[ ! -e $kek ]]; then
    head -c 32 /dev/urandom | base64 >"$kek.new"
    chmod 0400 "$kek.new"
    mv -nT "$kek.new" "$kek"
    printf 'A new KEK is in %s. Keep a copy apart from backups of the store: without it no signing secret can be read.\n' "$kek"
  fi
  if [[ -z $prefix ]] && systemd_runs; then
    systemctl daemon-reload
    printf 'Installed. Settings: %s\nThen: systemctl enable --now streaming-hub\n' "$settings"
  else
    printf 'Installed. Settings: %s\nsystemd does not run here, so it was told nothing. Where it does: systemctl enable --now streaming-hub\n' \
      "$settings"
  fi
}

main "$@"
