//! The user units of systemd, with the path of this program.

use std::path::Path;

const SERVICE: &str = include_str!("../../../systemd/user/credbroker.service");
const SOCKET: &str = include_str!("../../../systemd/user/credbroker.socket");
const START: &str = "ExecStart=/usr/bin/credbroker serve\n";

/// Names and contents. The service runs `program`, with the configuration `config`.
pub(super) fn units(program: &str, config: Option<&Path>) -> [(&'static str, String); 2] {
    let config = config.map(|config| format!(" --config {}", quoted(&config.to_string_lossy())));
    let start = format!("ExecStart={} serve{}\n", quoted(program), config.unwrap_or_default());
    // The advice for another path of the program is not needed.
    let service = SERVICE.replacen(START, &start, 1);
    [("credbroker.service", service), ("credbroker.socket", SOCKET.to_owned())]
}

/// A word of a command line, as systemd reads it.
fn quoted(word: &str) -> String {
    let mut quoted = String::from('"');
    for character in word.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '%' | '$' => quoted.extend([character, character]),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_runs_this_program_with_the_configuration() {
        let [(_, service), (_, socket)] =
            units("/home/jane/my bin/credbroker", Some(Path::new("/c/50%.yaml")));
        let start = "\nExecStart=\"/home/jane/my bin/credbroker\" serve --config \"/c/50%%.yaml\"\n";
        assert!(service.contains(start) && !service.contains(START), "{service}");
        assert!(socket.contains("ListenStream=%t/credbroker/credbroker.sock"));
        assert!(units("/b", None)[0].1.contains("\nExecStart=\"/b\" serve\n"));
    }
}
