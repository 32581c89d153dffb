//! The scripts with which shells call this program.

use clap_complete::env::Shells;

use super::{Shell, VARIABLE};

/// The library's script divides words as bash does, at `:`, `=` and `@`, which names of providers often have, and inserts
/// candidates without quotes: bash would run what a name has in `$()`.
const BASH: &str = r#"_credbroker() {
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
"#;

/// Changes of the library's other scripts: the words reach this program as the person means them, without quotes.
const UNQUOTED: [(&str, &str); 2] = [
    (r#""${words[@]}""#, r#""${(@Q)words}""#),
    ("(commandline --current-token)", "(commandline --current-token | string unescape)"),
];

/// The script that lets `shell` complete `credbroker` by calling `program`, a path or a name in `PATH`.
pub(in crate::cli) fn script(shell: Shell, program: &str) -> String {
    if shell == Shell::Bash {
        let program = format!("'{}'", program.replace('\'', r"'\''"));
        return BASH.replace("VARIABLE", VARIABLE).replace("PROGRAM", &program);
    }
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(shell.name()) {
        // Writing to a vector does not fail.
        drop(completer.write_registration(VARIABLE, "credbroker", "credbroker", program, &mut script));
    }
    let script = String::from_utf8_lossy(&script).into_owned();
    UNQUOTED.iter().fold(script, |script, (quoted, unquoted)| script.replace(quoted, unquoted))
}
