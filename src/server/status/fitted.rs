//! Messages that fit where statuses travel: in the headers of a response.

/// What the two headers that carry a message may have of it, in bytes. gRPC for Java, and the C core below Python and
/// others, take 8 KiB of headers in all, and of a larger response they show nothing but that.
const ROOM: usize = 6 * 1024;

const CUT: &str = " … ";

/// `message`, without its middle if it is too long: what failed stands at its start, what a plugin said last at its end.
pub(super) fn fitted(message: String) -> String {
    let all: usize = message.chars().map(thirds).sum();
    if all <= 3 * ROOM {
        return message;
    }
    let half = (3 * ROOM - CUT.chars().map(thirds).sum::<usize>()) / 2;
    let head: String = within(message.chars(), half).collect();
    let tail: Vec<char> = within(message.chars().rev(), half).collect();
    tail.into_iter().rev().fold(head + CUT, |mut text, character| {
        text.push(character);
        text
    })
}

/// As many of `characters` as fit into so many thirds of a byte.
fn within(characters: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    characters
        .scan(0, |used, character| {
            *used += thirds(character);
            Some((*used, character))
        })
        .take_while(move |(used, _)| *used <= room)
        .map(|(_, character)| character)
}

/// What a character takes in `grpc-message` (percent-encoded) and in `grpc-status-details-bin` (base64), in thirds of a
/// byte.
fn thirds(character: char) -> usize {
    let length = character.len_utf8();
    let plain = character.is_ascii_graphic() && !"\"#%<>`?{}".contains(character);
    (if plain { 1 } else { 3 * length }) * 3 + length * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_message_stays_as_it_is() {
        let message = format!("plugin `/p` failed: {}", "no session ".repeat(186)); // 2 KiB
        assert_eq!(fitted(message.clone()), message);
    }

    #[test]
    fn a_long_one_keeps_its_start_and_its_end() {
        for filler in ["x", " ", "é", "日", "\u{1f511}"] {
            let message = format!("plugin failed: {}: try again", filler.repeat(10_000));
            let fitted = fitted(message);
            assert!(fitted.starts_with("plugin failed: ") && fitted.ends_with(": try again"), "{fitted}");
            assert!(fitted.contains(CUT));
            let thirds: usize = fitted.chars().map(thirds).sum();
            assert!((3 * ROOM - 100..=3 * ROOM).contains(&thirds), "{filler:?}: {thirds}");
        }
    }
}
