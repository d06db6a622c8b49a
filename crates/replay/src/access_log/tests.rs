//! The same request is the same event in each layout.

use super::*;

fn mapping(time: &str, denied: &str, descriptors: &[&str]) -> Arc<Mapping> {
    let mut mapping = Mapping::new("edge".into(), time);
    mapping.set_denied(denied, "429");
    for descriptor in descriptors {
        mapping.add_descriptor(descriptor).expect("a descriptor");
    }
    Arc::new(mapping)
}

const DESCRIPTORS: [&str; 2] = ["user=headers.x-user", "generic_key=\"login\",remote_address=client"];

fn json(mapping: &Arc<Mapping>) -> AccessLog {
    AccessLog::new(Arc::clone(mapping), Layout::Json).expect("fields of JSON are not known before")
}

fn parse(log: &AccessLog, line: &str) -> Result<LineContent, LineError> {
    log.parse(line.as_bytes(), &mut FieldsSeen::default())
}

fn event(line: Result<LineContent, LineError>) -> Event {
    match line {
        Ok(LineContent::Step(Step::Decision(event))) => event,
        other => panic!("{other:?}"),
    }
}

/// Keys and values of all descriptors.
fn entries(log: &AccessLog, line: &str) -> Vec<String> {
    let event = event(parse(log, line));
    let entries = event.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    entries.map(|(key, value)| format!("{key}={value}")).collect()
}

fn text(format: &str, descriptors: &[&str]) -> Result<AccessLog, UnknownField> {
    let notation = Notation::of(format).expect("a notation");
    let format = TextFormat::parse(format, notation).expect("a format");
    let (time, status) = (format.time_field().expect("a time"), format.status_field().expect("a status"));
    AccessLog::new(mapping(time, status, descriptors), Layout::Text(Arc::new(format)))
}

#[test]
fn fields_of_an_access_log_of_envoy_become_descriptors() {
    let log = json(&mapping("start_time", "response_code", &DESCRIPTORS));
    let line = r#"{"start_time":"2026-03-01T12:00:00.250Z","headers":{"x-user":"ada"},"client":null,"response_code":429}"#;
    let denied = event(parse(&log, line));
    assert_eq!((denied.code, denied.descriptors.len()), (Code::OverLimit, 1), "without `client`");
    assert_eq!(denied.descriptors[0].entries, [("user".into(), "ada".into())]);
    let line = r#"{"start_time":"1772366400.25","client":"10.0.0.7:4711","response_code":200}"#;
    let admitted = event(parse(&log, line));
    assert_eq!((admitted.code, admitted.time), (Code::Ok, denied.time));
    assert_eq!(entries(&log, line), ["generic_key=login", "remote_address=10.0.0.7"]);
    let nothing = parse(&log, r#"{"start_time":1772366400,"client":"-"}"#);
    assert_eq!(nothing.expect("a line"), LineContent::WithoutDescriptors);
}

#[test]
fn elements_of_lists_are_named_by_their_index_and_from_the_end() {
    let line =
        r#"{"start_time":1,"tags":["a",{"b":["c","d"]}],"xff":"1.1.1.1, 2.2.2.2,3.3.3.3","odd[0]":"e"}"#;
    for (field, expected) in [
        ("k=tags[0]", Some("k=a")),
        ("k=tags[1].b[-1]", Some("k=d")),
        ("k=tags[2]", None),
        ("k=tags", None),
        ("k=xff[0]", Some("k=1.1.1.1")),
        ("k=xff[-2]", Some("k=2.2.2.2")),
        ("k=xff[-4]", None),
        ("k=xff", Some("k=1.1.1.1, 2.2.2.2,3.3.3.3")),
        ("remote_address=xff", Some("remote_address=3.3.3.3")),
        ("remote_address=xff[-2]", Some("remote_address=2.2.2.2")),
        ("k=odd[0]", Some("k=e")),
    ] {
        let log = json(&mapping("start_time", "code", &[field, "always=\"\u{201d}\""]));
        let entries = entries(&log, line);
        assert_eq!(entries.len() == 2, expected.is_some(), "{field}: {entries:?}");
        assert_eq!(expected.unwrap_or("always=\u{201d}"), entries[0], "{field}");
    }
}

#[test]
fn records_of_csv_may_quote_commas_and_quotes() {
    let of = |columns: &str| {
        let columns = Columns::parse(columns.as_bytes()).expect("columns");
        AccessLog::new(mapping("start_time", "response_code", &DESCRIPTORS), Layout::Csv(columns))
    };
    let log = of("start_time,headers.x-user,client,response_code\r\n").expect("all columns");
    let values = entries(&log, "1772366400,\"a,\"\"b\"\"\",\"192.0.2.1:80\",200\r\n");
    assert_eq!(values, ["user=a,\"b\"", "generic_key=login", "remote_address=192.0.2.1"]);
    let error = |line: &str| parse(&log, line).unwrap_err().to_string();
    assert_eq!(error("1,2\n"), "2 fields; the header has 4");
    assert_eq!(error("1,\"2,3,4\n"), "a quoted field is not closed");
    assert_eq!(error(",a,b,c\n"), "the field `start_time` is missing");
    assert!(error("noon,a,b,c\n").starts_with("the time is \"noon\"; the forms that are read are RFC 3339"));
    let error = of("start_time,headers.xuser,client,response_code").err().expect("a column is missing");
    assert_eq!(
        error.to_string(),
        "there is no column `headers.x-user`, for the entry `user` of a descriptor; the nearest is `headers.xuser`"
    );
}

#[test]
fn hits_are_read_from_their_field() {
    let mut with_hits = Mapping::new("d".into(), "start_time");
    with_hits.set_hits("cost");
    with_hits.add_descriptor("client=client").expect("a descriptor");
    let log = json(&Arc::new(with_hits));
    let hits = |cost: &str| {
        let line = format!(r#"{{"start_time":1,"client":"c","cost":{cost}}}"#);
        parse(&log, &line).map(|line| event(Ok(line)).descriptors[0].hits)
    };
    assert_eq!(hits("3").unwrap(), Hits::Take(NonZeroU64::new(3).unwrap()));
    assert_eq!(hits("\"0\"").unwrap(), Hits::Peek);
    assert_eq!(hits("-3").unwrap_err().to_string(), "the field `cost` is \"-3\"; it must be a whole number");
}

/// Formats of servers, their fields, and a line of each for the same request.
#[test]
fn the_formats_of_servers_have_the_request_that_json_has() {
    let json_line = r#"{"start_time":"2026-03-01T12:00:00Z","method":"GET","path":"/a?b=c","client":"192.0.2.44:37652","agent":"x \"y\" é","response_code":429}"#;
    let of_json = ["method=method,path=path", "agent=agent", "remote_address=client"];
    let expected = event(parse(&json(&mapping("start_time", "response_code", &of_json)), json_line));
    let agent = "x \"y\" é";
    for (format, fields, line) in [
        (
            ENVOY_DEFAULT,
            ["method=:method,path=:path", "agent=user-agent", "remote_address=X-Forwarded-For"],
            format!(
                "[2026-03-01T12:00:00.000Z] \"GET /a?b=c HTTP/2\" 429 RL 0 18 0 - \"198.51.100.9, 192.0.2.44\" \"{agent}\" \"r-1\" \"a.test\" \"-\"\n"
            ),
        ),
        (
            ISTIO_DEFAULT,
            ["method=REQ(:METHOD),path=REQ(:PATH)", "agent=%REQ(USER-AGENT)%", "remote_address=downstream_remote_address"],
            format!(
                "[2026-03-01T12:00:00.000Z] \"GET /a?b=c HTTP/1.1\" 429 RL request_rate_limited - \"-\" 0 18 0 - \"-\" \"{agent}\" \"r-1\" \
                 \"a.test\" \"10.0.0.1:80\" inbound|80|| 127.0.0.6:1 10.0.0.2:80 192.0.2.44:37652 - default\n"
            ),
        ),
        (
            NGINX_COMBINED,
            ["method=$request_method,path=request_uri", "agent=http_user_agent", "remote_address=remote_addr"],
            "192.0.2.44 - a b [01/Mar/2026:13:00:00 +0100] \"GET /a?b=c HTTP/1.1\" 429 0 \"-\" \"x \\x22y\\x22 \\xC3\\xA9\"\n"
                .to_owned(),
        ),
        (
            APACHE_COMBINED,
            ["method=method,path=path", "agent=%{user-agent}i", "remote_address=%h"],
            "192.0.2.44 - - [01/Mar/2026:12:00:00 +0000] \"GET /a?b=c HTTP/1.1\" 429 0 \"-\" \"x \\\"y\\\" \\xc3\\xa9\"\r\n"
                .to_owned(),
        ),
        (
            "%REQ(USER-AGENT)% | %START_TIME(%d.%m.%Y %H:%M:%S.%3f)% %RESPONSE_CODE% %REQ(X-FORWARDED-FOR)% %REQ(:METHOD)% %REQ(:PATH)%\\n",
            ["method=:method,path=:path", "agent=user-agent", "remote_address=x-forwarded-for"],
            format!("{agent} | 01.03.2026 12:00:00.000 429 198.51.100.9, 192.0.2.44 GET /a?b=c\n"),
        ),
        (
            "$status $time_local <${http_user_agent}> $http_x_forwarded_for $request_method $request_uri",
            ["method=request_method,path=request_uri", "agent=user_agent", "remote_address=x_forwarded_for[-1]"],
            format!("429 01/Mar/2026:12:00:00 +0000 <{agent}> 198.51.100.9, 192.0.2.44 GET /a?b=c"),
        ),
    ] {
        let log = text(format, &fields).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(event(parse(&log, &line)), expected, "{line}");
    }
}

/// Envoy does not escape the quotes of a header.
#[test]
fn a_header_that_looks_like_other_fields_makes_no_request() {
    let log = text(ISTIO_DEFAULT, &["remote_address=downstream_remote_address"]).expect("all fields");
    let line = |agent: &str| {
        format!(
            "[2026-03-01T12:00:00.000Z] \"GET / HTTP/1.1\" 200 - via_upstream - \"-\" 0 18 0 - \"-\" \"{agent}\" \"r-1\" \"a.test\" \
             \"10.0.0.1:80\" inbound|80|| 127.0.0.6:1 10.0.0.2:80 192.0.2.44:1 - default"
        )
    };
    assert_eq!(entries(&log, &line("a \" b")), ["remote_address=192.0.2.44"]);
    let forged = r#"a" "r-2" "a.test" "10.0.0.1:80" c 127.0.0.6:1 10.0.0.2:80 203.0.113.9:1 - x"#;
    for agent in [forged, "a\" \"b"] {
        let error = parse(&log, &line(agent)).unwrap_err().to_string();
        assert!(error.starts_with("the line fits the format in several ways: the field"), "{error}");
    }
    let escaped = text(APACHE_COMBINED, &["agent=user-agent"]).expect("all fields");
    let line = r#"a - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 0 "r\" \"" "b\" ""#;
    assert_eq!(entries(&escaped, line), [r#"agent=b" "#]);
}

#[test]
fn a_line_that_does_not_fit_has_the_place() {
    let log = text(NGINX_COMBINED, &["remote_address=remote_addr"]).expect("all fields");
    let error = |line: &[u8]| log.parse(line, &mut FieldsSeen::default()).unwrap_err().to_string();
    let misfit = "the line does not fit the format: the field";
    assert_eq!(error(b""), format!("{misfit} `remote_addr` at column 1 has no \" - \" after it"));
    assert_eq!(
        error(b"192.0.2.1 - - noon"),
        format!("{misfit} `remote_user` at column 13 has no \" [\" after it")
    );
    let more = b"192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] \"-\" 400 0 \"-\" \"-\" 0.1\n";
    assert_eq!(
        error(more),
        format!("{misfit} `http_user_agent` at column 59 has no \"\\\"\" after it at the end of the line")
    );
    assert!(error(b"\xff\xfe\0\n").contains("does not fit"));
    // An incomplete request line has no path, but its address counts.
    let incomplete = "192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\"\n";
    assert_eq!(entries(&log, incomplete), ["remote_address=192.0.2.1"]);
    let log = text(NGINX_COMBINED, &["path=path"]).expect("all fields");
    assert_eq!(parse(&log, incomplete).expect("a line"), LineContent::WithoutDescriptors);
}

#[test]
fn a_field_that_the_format_does_not_have_and_a_format_without_fields_are_refused() {
    let unknown = |format: &str, field: &str| text(format, &[field]).err().expect("an error").to_string();
    assert_eq!(
        unknown(ENVOY_DEFAULT, "user=REQ(X-FORWARDED)"),
        "there is no field `REQ(X-FORWARDED)`, for the entry `user` of a descriptor; the nearest is `REQ(X-FORWARDED-FOR)`"
    );
    assert!(unknown("%h %t %s", "user=zzz").ends_with("there are h, t, s"));
    for (format, notation, error) in [
        ("none", Notation::Apache, "the format has no field"),
        ("%h%u", Notation::Apache, "h and u have no text between them"),
        ("a %REQ(X", Notation::Envoy, "the field at column 3 is not closed"),
    ] {
        let found = TextFormat::parse(format, notation).unwrap_err().to_string();
        assert!(found.starts_with(error), "{format}: {found}");
    }
}

#[test]
fn a_field_that_no_line_has_is_named_with_the_nearest_one() {
    let warnings = |descriptors: &[&str], line: &str| {
        let (log, mut seen) =
            (json(&mapping("start_time", "response_code", descriptors)), FieldsSeen::default());
        drop(log.parse(line.as_bytes(), &mut seen));
        seen.warnings(log.mapping())
    };
    let line = r#"{"start_time":1,"x_user":"a","headers":{"tags":["b"]},"response_code":200}"#;
    assert_eq!(warnings(&["user=x_user"], line), [""; 0]);
    assert_eq!(
        warnings(&["user=x_usr,tag=headers.tags"], line),
        [
            "no line has a value for the field `x_usr`, for the entry `user` of a descriptor; the nearest is `x_user`",
            "no line has a value for the field `headers.tags`, for the entry `tag` of a descriptor; the nearest is `headers.tags[0]`",
        ]
    );
    assert_eq!(
        warnings(&["user=x_user"], r#"{"time":1,"x_user":"a"}"#),
        ["no line has a value for the field `start_time`, for the time; the nearest is `time`"]
    );
    assert_eq!(
        warnings(&["remote_address=x_user"], line),
        [r#"1 values of addresses are no IP addresses, such as "a"; they are kept as they are"#]
    );
}
