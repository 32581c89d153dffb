_credbroker() {
    local line=${COMP_LINE:0:COMP_POINT} words candidates candidate current replaced
    # Without `-r`, so that `\` is removed.
    read -a words <<<"$line"
    if [[ $line == *[[:blank:]] && $line != *\\[[:blank:]] ]]; then words+=(""); fi
    current=${words[-1]}
    # The last part of the current word, which bash replaces.
    read replaced <<<"$2"
    mapfile -t candidates < <(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) VARIABLE=bash \
        PROGRAM -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    for candidate in "${candidates[@]}"; do
        printf -v candidate %q "${candidate#"${current%"$replaced"}"}"
        COMPREPLY+=("$candidate")
    done
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}

complete -o bashdefault -o nosort -F _credbroker credbroker
