//! Which sections of AWS's `config` and `credentials` a profile uses.

use std::collections::HashSet;

const PROFILE: &str = "profile";

/// The lines of the sections of `config` and `credentials` that `profiles` use, also through others. `None`: it cannot be
/// decided, or programs differ in how they read the files.
pub(super) fn used<'a>(texts: [&'a [u8]; 2], profiles: &[String]) -> Option<Vec<&'a str>> {
    let mut sections: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for (text, is_config) in texts.into_iter().zip([true, false]) {
        let first = sections.len();
        for line in str::from_utf8(text).ok()?.lines() {
            let content = line.trim();
            if content.is_empty() || content.starts_with(['#', ';']) {
                continue;
            }
            if !content.starts_with('[') {
                sections.get_mut(first..)?.last_mut()?.1.push(line);
                continue;
            }
            let (header, _) = line.strip_prefix('[')?.split_once(']')?;
            let words: Vec<_> = header.split_whitespace().collect();
            let section = match &words[..] {
                _ if header.contains(['"', '\'', '\\', '[']) => return None,
                [kind, name] if is_config => (*kind, *name),
                [name] => (PROFILE, *name),
                _ => return None,
            };
            // With its header: a line that moves to the next section has another meaning.
            sections.push((section, vec![line]));
        }
    }
    let mut wanted: Vec<_> = profiles.iter().map(|name| (PROFILE, name.as_str())).collect();
    let (mut seen, mut used) = (HashSet::new(), Vec::new());
    while let Some(next) = wanted.pop() {
        let is_new = seen.insert(next);
        for line in
            sections.iter().filter(|(section, _)| is_new && *section == next).flat_map(|(_, lines)| lines)
        {
            used.push(*line);
            let (key, value) = line.split_once(['=', ':']).unwrap_or_default();
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            let kind = match key.as_str() {
                "source_profile" => PROFILE,
                "sso_session" => "sso-session",
                "services" => "services",
                _ => continue,
            };
            if value.contains([' ', '\t', '#', ';', '"', '\'']) {
                return None;
            }
            wanted.push((kind, value));
        }
    }
    Some(used)
}
