use super::*;

fn command() -> PluginCommand {
    let environment = [("SECRET".into(), "canary".into())].into();
    PluginCommand { program: "/bin/pw".into(), args: vec!["canary".into()], environment }
}

#[test]
fn a_lender_gets_one_offer_and_none_after_it_has_left() {
    let (lender, mut offered) = Lender::new(7);
    assert!(lender.is_free());
    let mut deposited = lender.offer(command()).unwrap();
    assert!(!lender.is_free() && lender.offer(command()).is_none());
    let offer = offered.try_recv().unwrap();
    assert_eq!(offer.command.program, PathBuf::from("/bin/pw"));
    offer.deposit.send(Deposit { stdout: b"x".to_vec().into(), exit_code: 0 }).unwrap();
    assert_eq!(*deposited.try_recv().unwrap().stdout().unwrap(), b"x");

    let (lender, offered) = Lender::new(7);
    drop(offered);
    assert!(!lender.is_free() && lender.offer(command()).is_none());
}

#[test]
fn only_the_output_of_a_success_counts_and_only_up_to_the_limit() {
    let stdout = |length, exit_code| {
        Deposit { stdout: vec![b'x'; length].into(), exit_code }.stdout().map(|stdout| stdout.len())
    };
    assert_eq!(stdout(LEASED_OUTPUT, 0).unwrap(), LEASED_OUTPUT);
    assert!(matches!(stdout(LEASED_OUTPUT + 1, 0), Err(RunErrorKind::OutputTooLarge(_))));
    assert!(matches!(stdout(LEASED_OUTPUT + 1, 137), Err(RunErrorKind::OutputTooLarge(_))));
    assert!(matches!(stdout(1, 130), Err(RunErrorKind::Exit(130))));
}

#[test]
fn debug_shows_neither_arguments_nor_variables_nor_output() {
    let deposit = Deposit { stdout: b"canary".to_vec().into(), exit_code: 0 };
    let shown = format!("{:?} {deposit:?}", command());
    assert!(shown.contains("/bin/pw") && !shown.contains("canary"), "{shown}");
}
