use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment(variables.iter().map(|(name, value)| (name.into(), value.into())).collect())
}

#[test]
fn traces_are_sent_if_an_endpoint_is_set_and_nothing_turns_them_off() {
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let endpoint = |variables: &[_]| {
        let environment = environment(variables);
        collector(&environment).map(|found| found.map(|(_, endpoint)| endpoint.to_owned()))
    };
    assert_eq!(endpoint(&[]), Ok(None));
    assert_eq!(endpoint(&[(ALL, "")]), Ok(None));
    assert_eq!(endpoint(&[(ALL, "http://a"), (TRACES, "")]), Ok(Some("http://a".into())));
    assert_eq!(endpoint(&[(ALL, "http://a"), (TRACES, "http://b")]), Ok(Some("http://b".into())));
    assert_eq!(endpoint(&[(ALL, "http://a"), ("OTEL_SDK_DISABLED", "True")]), Ok(None));
    assert_eq!(endpoint(&[(ALL, "http://a"), ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    let protocol = |protocol| endpoint(&[(ALL, "http://a"), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
    assert_eq!(protocol("grpc"), Ok(Some("http://a".into())));
    assert!(protocol("http/protobuf").is_err());
}

#[test]
fn the_resource_has_a_name_that_the_environment_can_replace() {
    let name = |variables: &[_]| {
        let resource = resource(&environment(variables));
        resource.get(&"service.name".into()).unwrap().to_string()
    };
    assert_eq!(name(&[]), "credbroker");
    assert_eq!(name(&[("OTEL_SERVICE_NAME", "broker-of-ci")]), "broker-of-ci");
}
