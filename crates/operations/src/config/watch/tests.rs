use super::*;
use crate::config::ReloadRequests;
use std::{fs, io::Write as _, os::unix::fs::symlink, path::Path};

/// Longer than a busy machine takes to notice a change.
const LONG: Duration = Duration::from_secs(20);

fn only(path: &Path) -> RuleFilePaths {
    vec![path.to_owned()].into()
}

fn settings(mode: WatchMode) -> WatchSettings {
    let (poll_interval, settle) = (Duration::from_millis(50), Duration::from_millis(20));
    WatchSettings { mode, poll_interval, settle }
}

fn watch(path: &Path, mode: WatchMode) -> Watch {
    Watch::new(only(path), settings(mode))
}

/// A watch of one file, in which changes settle in this time.
fn settling(path: &Path, settle: Duration) -> Watch {
    Watch::new(only(path), WatchSettings { settle, ..WatchSettings::default() })
}

/// Waits until a change is reported. Panics if none is.
fn changed(watch: &mut Watch) {
    let rounds = LONG.as_millis() / 50;
    let wake = (0..rounds).map(|_| watch.wait(Duration::from_millis(50))).find(|wake| *wake != Wake::Idle);
    assert_eq!(wake, Some(Wake::Changed));
}

/// Makes a change that the watch does not count, and receives events up to that of this change, as events arrive in the order of changes.
/// Returns the number of events before it.
fn events_until_now(watch: &mut Watch, folder: &Path) -> usize {
    let fence = folder.join(".fence");
    // Each of the two is one event.
    let made = if fence.exists() { fs::remove_dir(&fence) } else { fs::create_dir(&fence) };
    made.unwrap();
    let of_fence = |message: &Message| match message {
        Message::Event(Ok(event)) => event.paths.contains(&fence),
        Message::Event(Err(_)) | Message::Request | Message::Stop => false,
    };
    (0..).find(|_| of_fence(&watch.messages.recv_timeout(LONG).expect("an event of the fence"))).unwrap_or(0)
}

fn quiet(watch: &mut Watch) {
    for _ in 0..6 {
        assert_eq!(watch.wait(Duration::from_millis(50)), Wake::Idle);
    }
}

#[test]
fn every_kind_of_change_is_reported_once() {
    for mode in [WatchMode::Auto, WatchMode::Poll] {
        // The folder around it is watched too: there must be no changes by others.
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("rules");
        fs::create_dir(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("a.yaml"), "1").unwrap();
        let mut watch = watch(&folder, mode);
        let changes: [&dyn Fn(); 7] = [
            &|| fs::write(path("a.yaml"), "2").unwrap(),
            &|| {
                fs::write(path(".a.yaml.new"), "3").unwrap();
                fs::rename(path(".a.yaml.new"), path("a.yaml")).unwrap();
            },
            &|| fs::write(path("b.yaml"), "1").unwrap(),
            &|| fs::remove_file(path("b.yaml")).unwrap(),
            &|| fs::create_dir(path("below")).unwrap(),
            &|| fs::write(path("below/c.yaml"), "1").unwrap(),
            &|| fs::remove_dir_all(path("below")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            changed(&mut watch);
            let has_events = watch.events.is_some();
            if has_events {
                // Receives the later events of the change.
                events_until_now(&mut watch, &folder);
            }
            let seen = watch.look_anew();
            assert_eq!(Some(seen), watch.seen, "{mode:?}: change {number} was reported as a whole");
            let events = if has_events { events_until_now(&mut watch, &folder) } else { 0 };
            assert_eq!(events, 0, "{mode:?}: looking at change {number} is no change");
        }
    }
}

/// The kubelet writes a new directory, makes a link to it, and renames that link over `..data`.
#[test]
fn the_swap_of_a_config_map_is_reported() {
    for mode in [WatchMode::Auto, WatchMode::Poll] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let publish = |generation: &str, text: &str| {
            fs::create_dir(path(generation)).unwrap();
            fs::write(path(generation).join("rules.yaml"), text).unwrap();
            symlink(generation, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
        };
        publish("..1", "one");
        symlink("..data/rules.yaml", path("rules.yaml")).unwrap();
        let mut of_folder = watch(folder.path(), mode);
        let mut of_file = watch(&path("rules.yaml"), mode);
        for (generation, former) in [("..2", "..1"), ("..3", "..2")] {
            publish(generation, generation);
            fs::remove_dir_all(path(former)).unwrap();
            changed(&mut of_folder);
            changed(&mut of_file);
            assert_eq!(fs::read_to_string(path("rules.yaml")).unwrap(), generation);
        }
    }
}

/// With --rules-dot-files, an edited file whose name begins with a dot stayed without effect until a SIGHUP.
#[test]
fn a_dot_file_that_is_read_is_watched_too() {
    let modes = [WatchMode::Auto, WatchMode::Poll];
    for (mode, pattern) in modes.into_iter().flat_map(|mode| [(mode, ""), (mode, "config.*")]) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = if pattern.is_empty() { ".a.yaml" } else { "config.d/.a.yaml" };
        fs::create_dir(path("config.d")).unwrap();
        fs::write(path(name), "1").unwrap();
        let paths = RuleFilePaths { dot_files: true, ..only(&folder.path().join(pattern)) };
        let mut watch = Watch::new(paths, settings(mode));
        fs::write(path(name), "22").unwrap();
        changed(&mut watch);
        fs::write(path("..a.yaml"), "1").unwrap();
        quiet(&mut watch);
    }
}

/// Releases are often directories beside each other, with a link to the one in use.
#[test]
fn a_link_on_the_way_to_a_file_is_followed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for release in ["one", "two"] {
        fs::create_dir(path(release)).unwrap();
        fs::write(path(release).join("rules.yaml"), release).unwrap();
    }
    symlink("one", path("current")).unwrap();
    let mut watch = watch(&path("current/rules.yaml"), WatchMode::Auto);
    symlink("two", path("next")).unwrap();
    fs::rename(path("next"), path("current")).unwrap();
    changed(&mut watch);
}

/// Files that could not be read for want of file descriptors were not read again until they changed or at SIGHUP.
#[test]
fn files_that_could_not_be_read_are_reported_again_without_a_change() {
    for mode in [WatchMode::Auto, WatchMode::Poll] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "1").unwrap();
        let mut watch = watch(folder.path(), mode);
        watch.forget();
        let (sender, changes) = mpsc::channel();
        // The first attempt fails.
        let mut attempts = 0;
        let on_wake = move |wake| {
            let is_change = wake == Wake::Changed;
            attempts += u32::from(is_change);
            // The receiver may be gone.
            let _ = sender.send(attempts);
            !is_change || attempts > 1
        };
        let thread = WatchThread::start("test", watch, &ReloadRequests::default(), on_wake).unwrap();
        let next = || changes.recv_timeout(LONG).expect("a wake");
        while next() < 2 {}
        // The second succeeds: the next look finds no change.
        assert_eq!(next(), 2, "{mode:?}");
        thread.stop();
    }
}

#[test]
fn an_error_is_logged_once_and_at_each_request_until_an_attempt_succeeds() {
    let mut last = LastError::default();
    for (wake, error, is_to_log) in [
        (Wake::Changed, "a", true),
        (Wake::Changed, "a", false),
        (Wake::Requested, "a", true),
        (Wake::Changed, "b", true),
    ] {
        assert_eq!(last.is_to_log(wake, &Err::<(), _>(error)), is_to_log, "{wake:?} {error}");
    }
    last.is_to_log(Wake::Changed, &Ok::<_, &str>(()));
    assert!(last.is_to_log(Wake::Changed, &Err::<(), _>("b")));
}

/// A writer that pauses between two parts of a file.
#[test]
fn a_file_is_not_reported_while_it_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "before").unwrap();
    // The writer takes longer than changes of closed files need to settle.
    let settle = Duration::from_millis(2);
    let mut watch = settling(&path, settle);
    let (half, written) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(b"first half, ").unwrap();
            half.send(()).unwrap();
            // Sleeps for many settle times.
            std::thread::sleep(Duration::from_millis(300));
            file.write_all(b"second half").unwrap();
        });
        written.recv().unwrap();
        changed(&mut watch);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first half, second half");
    });
}

/// The end of the writing may go unnoticed, so that a file that stays open is finally read.
#[test]
fn a_file_that_stays_open_is_read_after_the_longest_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "before").unwrap();
    let settle = Duration::from_millis(1);
    let mut watch = settling(&path, settle);
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"after").unwrap();
    changed(&mut watch);
    drop(file);
}

/// An event of the operating system: data was written to the file.
fn written(path: &Path) -> Message {
    let kind = notify::EventKind::Modify(notify::event::ModifyKind::Data(notify::event::DataChange::Any));
    Message::Event(Ok(notify::Event::new(kind).add_path(path.to_owned())))
}

/// Events counted as settle times: a directory into which 17 files were copied was read half filled, and an open file after 600 writes.
#[test]
fn events_do_not_shorten_the_time_that_files_need_to_settle() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("a.yaml"), folder.path().join("log"));
    for path_of_events in [&path, &log] {
        fs::write(&path, "before").unwrap();
        // Longer than the test runs, so that only the stop can end the wait.
        let settle = Duration::from_secs(24 * 60 * 60);
        let mut watch = settling(&path, settle);
        fs::write(&path, "after").unwrap();
        for _ in 0..2 * SETTLES_WHILE_WRITTEN_MAX {
            watch.sender.send(written(path_of_events)).unwrap();
        }
        watch.handle().stop();
        assert_eq!(watch.wait(LONG), Wake::Stopped, "events of {}", path_of_events.display());
    }
}

#[test]
fn events_without_end_do_not_prolong_the_time_that_files_need_to_settle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "before").unwrap();
    let settle = Duration::from_millis(1);
    let mut watch = settling(&path, settle);
    fs::write(&path, "after").unwrap();
    let (sender, is_over) = (watch.sender.clone(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                sender.send(written(&folder.path().join("log"))).unwrap();
                std::thread::yield_now();
            }
        });
        let wake = watch.wait(LONG);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(wake, Wake::Changed);
    });
}

/// A log beside rule files, which is always open, made every change take the longest time.
#[test]
fn a_file_beside_the_watched_ones_that_is_open_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "before").unwrap();
    let settle = LONG / (SETTLES_WHILE_WRITTEN_MAX / 2);
    let mut watch = settling(&path, settle);
    let mut log = fs::File::create(folder.path().join("log")).unwrap();
    log.write_all(b"a line").unwrap();
    fs::write(&path, "after").unwrap();
    changed(&mut watch);
}

#[test]
fn a_path_that_does_not_exist_yet_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later/rules.yaml");
    let mut watch = watch(&path, WatchMode::Auto);
    fs::create_dir(folder.path().join("later")).unwrap();
    fs::write(&path, "1").unwrap();
    changed(&mut watch);
}

#[test]
fn requests_and_the_stop_wake_the_waiting_thread_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [WatchMode::Auto, WatchMode::Poll, WatchMode::Off] {
        let mut watch = watch(folder.path(), mode);
        let handle = watch.handle();
        handle.request();
        assert_eq!(watch.wait(LONG), Wake::Requested);
        if mode == WatchMode::Off {
            fs::write(folder.path().join("a.yaml"), "1").unwrap();
            quiet(&mut watch);
        }
        handle.stop();
        assert_eq!(watch.wait(LONG), Wake::Stopped);
    }
}
