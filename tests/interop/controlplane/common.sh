# Sourced by the scripts beside it: the processes of one control plane. DIRECTORY/processes/NAME has the pid of a process and its
# start time, because another process can have the pid later.

# The start time of a process; nothing if it has ended.
started() { # PID
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    # The name, which can have spaces, is in parentheses. A zombie has ended.
    stat=(${stat##*) })
    [[ ${stat[0]} == Z ]] || echo "${stat[19]}"
}
running() { # NAME
    local pid since
    [[ -e $folder/processes/$1 ]] && read -r pid since <"$folder/processes/$1" && [[ $since == "$(started "$pid")" ]]
}
# Starts a process that outlives the script, and writes to DIRECTORY/NAME.log.
launch() { # NAME COMMAND...
    local name=$1 pid
    shift
    setsid "$@" >>"$folder/$name.log" 2>&1 </dev/null 9>&- &
    pid=$!
    echo "$pid $(started $pid)" >"$folder/processes/$name"
}
# Ends a process, and kills it after ten seconds.
finish() { # NAME
    local pid tries=0
    if running "$1"; then
        read -r pid _ <"$folder/processes/$1"
        kill "$pid" 2>/dev/null || true
        while running "$1"; do
            ((tries += 1))
            ((tries != 100)) || kill -9 "$pid" 2>/dev/null || true
            ((tries < 200)) || { echo "$1 ($pid) does not end" >&2; return 1; }
            sleep 0.1
        done
    fi
    rm -f "$folder/processes/$1"
}
