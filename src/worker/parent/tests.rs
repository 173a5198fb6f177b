//! A shell plays the reader: what it says and how it ends is what the parent must not be fooled by.

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn reader(script: &str) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("a shell")
}

/// What the parent makes of it, and the lines that it believed.
async fn told(script: &str, deadline: Deadline) -> (Result<(), Why>, Vec<Line>) {
    let mut heard = Vec::new();
    let outcome = listen(reader(script), deadline, |line| heard.push(line)).await;
    (outcome, heard)
}

#[track_caller]
fn failed(outcome: Result<(), Why>, says: &str) {
    let Err(Why::ReaderFailed { detail }) = outcome else { panic!("not a failed reader: {outcome:?}") };
    assert!(detail.contains(says), "{detail:?} does not say {says:?}");
}

#[tokio::test]
async fn an_answer_and_the_last_line_are_a_success() {
    let (outcome, heard) =
        told(r#"echo '{"mark":{"seen":null}}'; echo '"done"'; sleep 600"#, Deadline::quiet(LONG)).await;
    assert_eq!(outcome, Ok(()));
    assert!(matches!(heard.as_slice(), [Line::Mark(Observed::Seen(None))]), "{heard:?}");
}

#[tokio::test]
async fn a_line_of_nonsense_fails_the_reader_whatever_follows() {
    for nonsense in ["hello", "{}", r#"{"mark":{"seen":7}}"#, r#"{"no-such":1}"#, "", r"\0377\0376"] {
        let (outcome, heard) = told(&format!(r#"printf '{nonsense}\n"done"\n'"#), Deadline::quiet(LONG)).await;
        failed(outcome, "nonsense");
        assert!(heard.is_empty(), "{heard:?}");
    }
}

#[tokio::test]
async fn a_line_without_its_end_is_no_line() {
    let (outcome, heard) = told(r#"printf '{"mark":{"seen":null}}'"#, Deadline::quiet(LONG)).await;
    failed(outcome, "ends in the middle of a line");
    assert!(heard.is_empty(), "{heard:?}");
    let (outcome, _) = told(r#"printf '"done"'"#, Deadline::quiet(LONG)).await;
    failed(outcome, "ends in the middle of a line");
}

#[tokio::test]
async fn a_line_longer_than_the_limit_is_not_waited_for() {
    let (outcome, heard) = told(r#"printf '"'; tr '\0' a </dev/zero"#, Deadline::quiet(LONG)).await;
    failed(outcome, "longer than 16 MiB");
    assert!(heard.is_empty(), "{heard:?}");
}

#[tokio::test]
async fn an_end_without_the_last_line_is_a_failure_and_says_how_it_ended() {
    let (outcome, heard) =
        told(r#"echo '{"mark":{"seen":null}}'; echo trouble >&2; exit 0"#, Deadline::quiet(LONG)).await;
    failed(outcome, "(exit status: 0): trouble");
    assert_eq!(heard.len(), 1);
    failed(told("exit 7", Deadline::quiet(LONG)).await.0, "(exit status: 7)");
    failed(told("kill -SEGV $$", Deadline::quiet(LONG)).await.0, "(signal: 11 (SIGSEGV)");
    failed(told("kill -SYS $$", Deadline::quiet(LONG)).await.0, "(signal: 31 (SIGSYS)");
}

#[tokio::test]
async fn an_answer_before_the_failure_is_no_answer_where_it_is_the_only_one() {
    let (outcome, heard) = told(r#"echo '{"mark":{"seen":null}}'; kill -KILL $$"#, Deadline::quiet(LONG)).await;
    let Some(Line::Mark(answer)) = heard.into_iter().next() else { panic!("no answer was heard") };
    let concluded = conclude(outcome, Some(answer)).and_then_observed();
    assert!(matches!(concluded, Observed::Unknown(Why::ReaderFailed { .. })), "{concluded:?}");
}

#[tokio::test]
async fn done_without_an_answer_is_no_answer() {
    let (outcome, _) = told(r#"echo '"done"'"#, Deadline::quiet(LONG)).await;
    let concluded: Observed<Option<HighWater>> = conclude(outcome, None);
    assert!(matches!(concluded, Observed::Unknown(Why::ReaderFailed { .. })), "{concluded:?}");
}

#[tokio::test]
async fn silence_ends_the_wait_and_the_reader() {
    let short = Deadline { silence: Duration::from_millis(200), total: LONG };
    let child = reader("echo '{\"mark\":{\"seen\":null}}'; exec sleep 600");
    let pid = child.id().expect("it runs");
    let mut heard = 0;
    let outcome = listen(child, short, |_| heard += 1).await;
    assert!(matches!(outcome, Err(Why::TimedOut { .. })), "{outcome:?}");
    assert_eq!(heard, 1);
    assert_ends(pid).await;
}

#[tokio::test]
async fn a_reader_that_never_stops_talking_ends_with_the_whole_time() {
    let whole = Deadline { silence: LONG, total: Duration::from_millis(300) };
    let (outcome, heard) = told("while :; do echo '{\"mark\":{\"seen\":null}}'; sleep 0.05; done", whole).await;
    assert!(matches!(outcome, Err(Why::TimedOut { .. })), "{outcome:?}");
    assert!(!heard.is_empty());
}

/// Gone, or dead and only waiting to be reaped by the runtime.
async fn assert_ends(pid: u32) {
    let end = Instant::now() + LONG;
    loop {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => {}
            Ok(_) | Err(_) => return,
        }
        assert!(Instant::now() < end, "the reader runs on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
