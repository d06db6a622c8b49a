use super::*;
use std::{fs, os::unix::fs::PermissionsExt as _};

fn event(action: &str) -> AuditEvent {
    AuditEvent {
        actor: "token:ann".into(),
        action: action.into(),
        outcome: "OK".into(),
        ..AuditEvent::default()
    }
}

/// Appends lines. Returns the number of the last, or the error.
fn append(log: &AuditLog, actions: &[&str]) -> Result<u64, NotLogged> {
    let (sender, results) = mpsc::channel();
    for action in actions {
        let sender = sender.clone();
        let done: thread::Done = Box::new(move |number| sender.send(number).expect("received"));
        let line = NewEntry { event: event(action), time: Timestamp::from_millis(1_000), done: Some(done) };
        log.send(Message::Append(line));
    }
    let numbers: Vec<_> = actions.iter().map(|_| results.recv().expect("a result")).collect();
    numbers.into_iter().next_back().expect("an action")
}

fn open(path: &Path) -> Result<AuditLog, String> {
    AuditLog::open(Some(path)).map_err(|error| error.to_string())
}

fn verified(text: &str) -> Result<u64, u64> {
    let chain = verify(text.as_bytes(), |_| {}).expect("memory is read");
    chain.map(|chain| chain.end.number).map_err(|broken| broken.line)
}

fn actions(log: &AuditLog) -> Vec<String> {
    log.recent(0, 100).into_iter().map(|entry| entry.action).collect()
}

#[test]
fn a_chain_goes_on_after_a_restart_and_a_changed_line_breaks_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    append(&open(&path).expect("opens"), &["Reset", "SetBlock"]).expect("logged");
    let log = open(&path).expect("opens again");
    append(&log, &["DeleteBlock"]).expect("logged");
    let newest: Vec<_> = log.recent(0, 2).into_iter().map(|entry| entry.action).collect();
    assert_eq!((newest, log.recent(2, 9).len()), (vec!["DeleteBlock".into(), "SetBlock".into()], 1));
    drop(log);

    let text = fs::read_to_string(&path).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(verified(&text), Ok(3));
    assert_eq!(verified(&text.replace("SetBlock", "GetBlock")), Err(2), "changed");
    assert_eq!(verified(&(lines[0].to_owned() + "\n" + lines[2] + "\n")), Err(2), "removed");
    assert_eq!(verified(&([lines[1], lines[0], lines[2]].join("\n") + "\n")), Err(1), "moved");
    assert_eq!(verified(&(lines[0].to_owned() + "\n{}\n")), Err(2), "no line");
    fs::write(&path, text.replace("SetBlock", "GetBlock")).expect("written");
    let error = open(&path).err().expect("broken");
    assert!(error.contains("line 2: has another hash"), "{error}");
}

#[test]
fn a_line_that_was_cut_off_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    append(&open(&path).expect("opens"), &["Reset", "SetBlock"]).expect("logged");
    let text = fs::read_to_string(&path).expect("text");
    fs::write(&path, &text[..text.len() - 20]).expect("written");
    let log = open(&path).expect("opens");
    assert_eq!(append(&log, &["DeleteBlock"]), Ok(2));
    assert_eq!(verified(&fs::read_to_string(&path).expect("text")), Ok(2));
    assert_eq!(actions(&log), ["DeleteBlock", "Reset"]);
}

/// The disk accepts part of a write, and then nothing.
#[test]
fn a_line_that_the_disk_does_not_take_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let log = open(&path).expect("opens");
    append(&log, &["Reset"]).expect("logged");
    fs::write(&path, fs::read_to_string(&path).expect("text") + "{\"number\":").expect("written");
    let error = append(&log, &["SetBlock"]).expect_err("refused").to_string();
    assert!(error.contains("another program changed it"), "{error}");
    assert_eq!(actions(&log), ["Reset"]);
    fs::remove_file(&path).expect("removed");
    assert_eq!(append(&log, &["SetBlock"]), Ok(3), "after `Continued`");
}

#[test]
fn two_servers_cannot_write_one_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let log = open(&path).expect("opens");
    let error = open(&path).err().expect("locked");
    assert!(error.contains("another process writes it"), "{error}");
    drop(log);
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    open(&path).expect("opens");
}

#[test]
fn a_log_that_was_moved_or_truncated_goes_on_in_a_chain_that_verifies() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let log = open(&path).expect("opens");
    append(&log, &["Reset"]).expect("logged");
    fs::rename(&path, folder.path().join("old")).expect("moved");
    log.reopen();
    assert_eq!(append(&log, &["SetBlock"]), Ok(3));
    let text = fs::read_to_string(&path).expect("text");
    assert_eq!((verified(&text), text.lines().count()), (Ok(3), 2));
    assert_eq!(
        verified(&text.replacen("\\\"number\\\":1", "\\\"number\\\":2", 1)),
        Err(1),
        "another former line"
    );

    fs::OpenOptions::new().write(true).truncate(true).open(&path).expect("truncated");
    assert_eq!(append(&log, &["DeleteBlock"]), Ok(5));
    assert_eq!(verified(&fs::read_to_string(&path).expect("text")), Ok(5));
    drop(log);
    assert_eq!(actions(&open(&path).expect("opens")), ["DeleteBlock", "Continued"]);
}

#[test]
fn denied_calls_displace_no_change() {
    let log = AuditLog::open(None).expect("opens");
    append(&log, &["SetBlock"]).expect("logged");
    for _ in 0..5_000 {
        let denied = AuditEvent { outcome: "UNAUTHENTICATED".into(), ..event("Status") };
        log.note_denied(denied, Timestamp::from_millis(1_000));
    }
    log.flush();
    let oldest = log.recent(0, 5_000).pop().expect("a line");
    assert_eq!((oldest.number, &*oldest.action), (1, "SetBlock"));
}

#[test]
fn an_intent_is_listed_until_its_outcome_is_known() {
    let log = AuditLog::open(None).expect("opens");
    log.note(AuditEvent { outcome: INTENT.into(), ..event("Reset") }, Timestamp::from_millis(1));
    log.note(AuditEvent { outcome: INTENT.into(), ..event("SetBlock") }, Timestamp::from_millis(1));
    log.note(AuditEvent { intent: Some(1), ..event("Reset") }, Timestamp::from_millis(2));
    log.flush();
    let listed: Vec<_> = log.recent(0, 9).into_iter().map(|entry| (entry.number, entry.outcome)).collect();
    assert_eq!(listed, [(3, "OK".to_owned()), (2, INTENT.to_owned())]);
}
