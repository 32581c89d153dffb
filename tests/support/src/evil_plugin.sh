if [ ! -e "$dir/evil" ]; then
  echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"good"}}'
  exit 0
fi
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
  until [ "$(readlink /proc/$PPID/fd/1)" = /dev/null ]; do sleep 0.01; done # it has reported the start
  kill -STOP $PPID; exec sleep 300 ;;
kill-launcher)
  until [ "$(readlink /proc/$PPID/fd/1)" = /dev/null ]; do sleep 0.01; done # it has reported the start
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
  # Each process tries without end, so the place of one that is killed is taken immediately. Root has no limit of processes.
  [ "$(id -u)" != 0 ] || as='setpriv --reuid=64999 --clear-groups'
  exec ${as-} prlimit --nproc=40 perl -e 'fork while 1' ;;
fill-directory)
  i=0; while [ $i -lt 500 ]; do mkdir -p "d/$i"; : > "d/$i/f"; i=$((i + 1)); done; chmod 000 d; exit 1 ;;
deep-directory)
  perl -e 'for (1 .. 10000) { mkdir "d"; chdir "d" }'; exec sleep 300 ;;
dump)
  ls /proc/self/fd > "$dir/descriptors"; env > "$dir/environment"; exit 1 ;;
call-back)
  "$(cat "$dir/client")" get evil --socket "$(cat "$dir/socket")" > "$dir/answer" 2>&1; exit 1 ;;
esac
