//! What real clients send is accepted, and read as what they ask for.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests end by panics")]

use credbroker_proxy::{
    headers::{self, Site},
    path::Address,
};
use http::{HeaderMap, HeaderName, Method, Uri, Version};

mod requests;

#[test]
fn requests_of_real_clients_are_forwarded() {
    let site = Site { scheme: "http", port: Some(18999), origins: Vec::new() };
    let lines = requests::recorded().map(|request| {
        let (method, uri): (Method, Uri) = (request.method.parse().unwrap(), request.target.parse().unwrap());
        let of = request.headers.iter();
        let of: HeaderMap =
            of.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        let name = format!("{} {method} {uri}", request.client);
        site.check(&method, &uri, &of).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        headers::check(Version::HTTP_11, &of).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        let address = Address::read(&method, &uri, Version::HTTP_11);
        let address = address.unwrap_or_else(|refused| panic!("{name}: {refused}"));
        let info = address.attributes();
        let upgrade = headers::upgrade(&of).unwrap().map_or("", |protocol| protocol.as_str());
        let of = [
            &*info.verb,
            &info.api_group,
            &info.resource,
            &info.subresource,
            &info.namespace,
            &info.name,
            upgrade,
        ];
        let of: Vec<&str> = of.into_iter().filter(|field| !field.is_empty()).collect();
        format!("{} {method} {}\n    {}\n", request.client, address.path_and_query("").unwrap(), of.join(" "))
    });
    insta::assert_snapshot!(lines.collect::<String>());
}
