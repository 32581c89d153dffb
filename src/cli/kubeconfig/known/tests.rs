use std::{io, sync::Arc};

use credbroker_client::Socket;

use super::*;

fn definitions() -> Vec<(String, Definition)> {
    [("rel", "/home/jane/.kube/config"), ("dev", "/home/jane/.kube/config"), ("prod", "/etc/prod")]
        .map(|(name, file)| (name.to_owned(), Definition::new(file.into(), name)))
        .into()
}

fn known(definitions: &[(String, Definition)]) -> HashSet<String> {
    definitions.iter().map(|(_, definition)| definition.digest().to_owned()).collect()
}

fn running(known: HashSet<String>, files: &[&str], has_problems: bool) -> Running {
    Running { known, files: files.iter().map(PathBuf::from).collect(), has_problems }
}

#[test]
fn a_broker_with_all_definitions_is_ready() {
    let definitions = definitions();
    let said = |has_problems| text(&definitions, Ok(&running(known(&definitions), &[], has_problems)));
    insta::assert_snapshot!(said(false), @"The running broker has all of these providers.");
    insta::assert_snapshot!(said(true), @"The running broker has all of these providers, from an earlier version of its files: the files have problems now, which `credbroker status` shows.");
}

#[test]
fn a_broker_that_follows_the_file_gets_what_is_new_in_it() {
    let files = ["/home/jane/.kube/config"];
    let providers = known(&definitions()[1..]);
    let said = |has_problems| text(&definitions(), Ok(&running(providers.clone(), &files, has_problems)));
    insta::assert_snapshot!(said(false), @"The running broker does not have these definitions yet: rel. It reads their files again within a few seconds. If it reads a file only for the hub, add the file to `kubeconfigs` in its configuration.");
    insta::assert_snapshot!(said(true), @"The running broker does not have these definitions: rel. Its files have problems, which `credbroker status` shows; it reads them again when they change.");
}

/// One of the same name from another file is another provider.
#[test]
fn definitions_that_the_broker_does_not_have_are_named_with_the_remedy() {
    let other = ("rel".to_owned(), Definition::new("/other".into(), "rel"));
    let mut providers = known(&definitions()[1..]);
    providers.extend(known(&[other]));
    let said = |known| text(&definitions(), Ok(&running(known, &["/other"], false)));
    insta::assert_snapshot!(said(providers), @"The running broker does not have these definitions: rel. Until it does, requests for them fail. Add `kubeconfigs: [/home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/home/jane/.kube/config for it and restart it.");
    insta::assert_snapshot!(said(HashSet::new()), @"The running broker does not have these definitions: rel, dev, prod. Until it does, requests for them fail. Add `kubeconfigs: [/etc/prod, /home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/etc/prod:/home/jane/.kube/config for it and restart it.");
}

#[test]
fn without_an_answer_of_the_broker_the_text_has_the_remedy() {
    let unreachable = Failure::from(Error::Unreachable {
        socket: Socket::at("/run/x.sock"),
        source: Arc::new(io::Error::from_raw_os_error(2)),
    });
    insta::assert_snapshot!(text(&definitions()[..1], Err(&unreachable)), @"No broker is running. Add `kubeconfigs: [/home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/home/jane/.kube/config for it and start it.");
    let timeout = Failure::from(Error::Timeout { limit: Duration::from_secs(5) });
    let said = text(&definitions(), Err(&timeout));
    assert!(said.starts_with("The broker did not say which providers it has: "), "{said}");
}
