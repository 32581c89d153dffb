if [ ! -e "$dir/evil" ]; then
  echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"good"}}'
  exit 0
fi
bomb() {
  [ "$1" -eq 0 ] || { bomb $(($1 - 1)) & bomb $(($1 - 1)) & }
  sleep 300
}
case $1 in
flood)
  exec cat /dev/zero ;;
flood-stderr)
  exec yes 'it does not work' >&2 ;;
silence)
  exec sleep 300 ;;
stop)
  kill -STOP $$ ;;
stop-launcher)
  kill -STOP $PPID; exec sleep 300 ;;
kill-launcher)
  sleep 300 & kill -KILL $PPID; exec sleep 300 ;;
ignore-sigterm)
  trap '' TERM HUP INT; while :; do sleep 1; done ;;
daemon)
  (setsid sh -c 'sh -c "sleep 300" & exec sleep 300' &); exit 1 ;;
replace-itself)
  printf '#!/bin/sh\nexit 9\n' > "$dir/new"; chmod 755 "$dir/new"; mv "$dir/new" "$0"; exit 1 ;;
allocate)
  head -c 200000000 /dev/zero | tail -c 200000000 | wc -c >&2; exit 1 ;;
fork-bomb)
  setsid sh -c 'exec sleep 300' & bomb 6 ;;
fill-directory)
  i=0; while [ $i -lt 500 ]; do mkdir -p "d/$i"; : > "d/$i/f"; i=$((i + 1)); done; chmod 000 d; exit 1 ;;
dump)
  ls /proc/self/fd > "$dir/descriptors"; env > "$dir/environment"; exit 1 ;;
call-back)
  "$EVIL_BROKER" get --provider evil --socket "$EVIL_SOCKET"; exit 1 ;;
esac
