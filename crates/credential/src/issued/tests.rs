use super::*;
use crate::{ClientPair, Material, Sha256, Token, Validity, testing::issued};

fn material(token: Option<&str>, fingerprint: Option<u8>) -> Material {
    let token = token.map(|token| Token { secret: token.into(), expires_at: None });
    let pair = fingerprint.map(|byte| ClientPair {
        chain_pem: b"chain".to_vec().into(),
        key_pem: b"key".to_vec().into(),
        fingerprint: Sha256([byte; 32]),
        validity: Validity { from: SystemTime::UNIX_EPOCH, to: SystemTime::UNIX_EPOCH },
    });
    Material { token, pair }
}

#[test]
fn it_is_valid_only_while_both_clocks_agree() {
    let issued = issued(&Material::default());
    let at = |wall: i64, boot: u64| {
        let shift = Duration::from_secs(wall.unsigned_abs());
        let wall = if wall < 0 { issued.fetched.wall - shift } else { issued.fetched.wall + shift };
        issued.is_valid_at(Now { wall, boot: issued.fetched.boot + Duration::from_secs(boot) })
    };
    assert!(at(0, 0) && at(59, 59));
    assert!(!at(60, 59), "the wall clock reached the expiry");
    assert!(!at(59, 60), "the lifetime has passed");
    assert!(!at(3600, 1), "the wall clock was stepped forward");
    assert!(at(-3600, 59) && !at(-3600, 60), "a step back extends nothing");
}

#[test]
fn a_generation_prints_epoch_and_number() {
    assert_eq!(issued(&Material::default()).generation.to_string(), "e-7");
}

#[test]
fn the_secrets_are_found_in_what_is_sent() {
    let both = issued(&material(Some("t"), Some(1)));
    assert_eq!(
        (both.token(), both.certificate_pem(), both.key_pem()),
        (Some("t"), Some(&b"chain"[..]), Some(&b"key"[..]))
    );
    let neither = issued(&Material::default());
    assert_eq!((neither.token(), neither.certificate_pem(), neither.key_pem()), (None, None, None));
    assert_eq!(format!("{:?}", both.encoded), "EncodedCredential(9 bytes)");
}

#[test]
fn material_is_the_same_when_the_token_and_the_chain_are() {
    let all = [
        (None, None),
        (Some("t"), None),
        (Some("u"), None),
        (None, Some(1)),
        (Some("t"), Some(1)),
        (None, Some(2)),
    ];
    for (index, (token, chain)) in all.into_iter().enumerate() {
        for (other_index, (other_token, other_chain)) in all.into_iter().enumerate() {
            let same = issued(&material(token, chain)).is_same_as(&material(other_token, other_chain));
            assert_eq!(same, index == other_index);
        }
    }
}
