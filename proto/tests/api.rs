//! `docs/api.md` is what the comments of the `.proto` say. To write it again: `BLESS=1 cargo test -p credbroker-proto`.

#![allow(clippy::disallowed_methods, reason = "a test reads BLESS")]

use std::{collections::HashMap, fmt::Write as _, fs, path::Path};

use credbroker_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto, field_descriptor_proto::Type,
};

/// Numbers of fields in `descriptor.proto`, of which the path of a comment is made.
const SYNTAX: i32 = 12;
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const NESTED_MESSAGES: i32 = 3;
const NESTED_ENUMS: i32 = 4;
/// Of fields in a message, methods in a service, and values in an enum.
const MEMBERS: i32 = 2;

const HEAD: &str =
    "# API reference\n\n<!-- Generated from proto/credbroker: BLESS=1 cargo test -p credbroker-proto -->\n\n";

#[test]
fn the_reference_is_what_the_comments_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let text = reference();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).expect("docs/api.md can be written");
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|committed| committed == text),
        "docs/api.md is not current: run `BLESS=1 cargo test -p credbroker-proto` and commit it"
    );
}

fn reference() -> String {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the committed descriptors");
    let mut text = HEAD.to_owned();
    for file in set.file.iter().filter(|file| file.package().starts_with("credbroker.")) {
        let mut out = Reference { comments: comments(file), text };
        out.title("##", &format!("`{}`", file.name()), &[SYNTAX]);
        for (index, service) in (0..).zip(&file.service) {
            out.service(service, &[SERVICES, index]);
        }
        for (index, message) in (0..).zip(&file.message_type) {
            out.message(message, "", &[MESSAGES, index]);
        }
        for (index, found) in (0..).zip(&file.enum_type) {
            out.enumeration(found, "", &[ENUMS, index]);
        }
        text = out.text;
    }
    format!("{}\n", text.trim_end())
}

type Comments = HashMap<Vec<i32>, String>;

fn comments(file: &FileDescriptorProto) -> Comments {
    let locations = file.source_code_info.iter().flat_map(|info| &info.location);
    let leading = locations.filter(|location| location.leading_comments.is_some());
    leading.map(|location| (location.path.clone(), location.leading_comments().to_owned())).collect()
}

struct Reference {
    comments: Comments,
    text: String,
}

impl Reference {
    /// The paragraphs of a comment, each in one line. Every declaration has one.
    fn comment(&self, path: &[i32]) -> Vec<String> {
        let comment = self.comments.get(path).unwrap_or_else(|| panic!("{path:?} has no comment"));
        let lines = comment.lines().map(str::trim).filter(|line| !line.starts_with("buf:lint:"));
        let lines: Vec<_> = lines.collect();
        let paragraphs = lines.split(|line| line.is_empty()).map(|lines| lines.join(" "));
        paragraphs.filter(|text| !text.is_empty()).collect()
    }

    fn paragraphs(&mut self, path: &[i32]) {
        for paragraph in self.comment(path) {
            let _infallible = write!(self.text, "{paragraph}\n\n");
        }
    }

    fn title(&mut self, level: &str, title: &str, path: &[i32]) {
        let _infallible = write!(self.text, "{level} {title}\n\n");
        self.paragraphs(path);
    }

    fn row(&mut self, cells: &[&str], path: &[i32]) {
        let comment = self.comment(path).join(" ").replace('|', "\\|");
        let cells: String = cells.iter().map(|cell| format!("| `{cell}` ")).collect();
        let _infallible = writeln!(self.text, "{cells}| {comment} |");
    }

    fn service(&mut self, service: &ServiceDescriptorProto, path: &[i32]) {
        self.title("###", &format!("Service `{}`", service.name()), path);
        for (index, method) in (0..).zip(&service.method) {
            let stream = |streams| if streams { "stream " } else { "" };
            let request = [stream(method.client_streaming()), short(method.input_type())].concat();
            let response = [stream(method.server_streaming()), short(method.output_type())].concat();
            let title = format!("`{}({request}) returns ({response})`", method.name());
            self.title("####", &title, &[path, &[MEMBERS, index]].concat());
        }
    }

    fn message(&mut self, message: &DescriptorProto, outer: &str, path: &[i32]) {
        let name = format!("{outer}{}", message.name());
        let is_map = message.options.as_ref().is_some_and(|options| options.map_entry());
        if is_map {
            return;
        }
        self.title("###", &format!("Message `{name}`"), path);
        if !message.field.is_empty() {
            self.text.push_str("| Field | Type | Description |\n|---|---|---|\n");
            for (index, field) in (0..).zip(&message.field) {
                self.row(&[field.name(), &of(field, message)], &[path, &[MEMBERS, index]].concat());
            }
            self.text.push('\n');
        }
        for (index, nested) in (0..).zip(&message.nested_type) {
            self.message(nested, &format!("{name}."), &[path, &[NESTED_MESSAGES, index]].concat());
        }
        for (index, nested) in (0..).zip(&message.enum_type) {
            self.enumeration(nested, &format!("{name}."), &[path, &[NESTED_ENUMS, index]].concat());
        }
    }

    fn enumeration(&mut self, found: &EnumDescriptorProto, outer: &str, path: &[i32]) {
        self.title("###", &format!("Enum `{outer}{}`", found.name()), path);
        self.text.push_str("| Value | Number | Description |\n|---|---|---|\n");
        for (index, value) in (0..).zip(&found.value) {
            let number = value.number().to_string();
            self.row(&[value.name(), &number], &[path, &[MEMBERS, index]].concat());
        }
        self.text.push('\n');
    }
}

/// The type of a field, as the `.proto` has it.
fn of(field: &FieldDescriptorProto, message: &DescriptorProto) -> String {
    let entry = message.nested_type.iter().find(|nested| {
        let is_map = nested.options.as_ref().is_some_and(|options| options.map_entry());
        is_map && field.type_name().ends_with(&format!(".{}", nested.name()))
    });
    if let Some(entry) = entry {
        let parts: Vec<_> = entry.field.iter().map(|part| of(part, entry)).collect();
        return format!("map<{}>", parts.join(", "));
    }
    let name = match field.r#type() {
        Type::Message | Type::Enum => short(field.type_name()).to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    match field.label() {
        prost_types::field_descriptor_proto::Label::Repeated => format!("repeated {name}"),
        _ if field.proto3_optional() => format!("optional {name}"),
        _ if field.oneof_index.is_some() => format!("oneof {name}"),
        _ => name,
    }
}

fn short(name: &str) -> &str {
    let local = [".credbroker.v1.", ".credbroker.v1alpha1.", "."]
        .iter()
        .find_map(|package| name.strip_prefix(package));
    local.unwrap_or(name)
}
