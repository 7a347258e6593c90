//! Tests of good and bad values, and of the precedence of the sources. Tests that need an
//! environment of their own are in `tests/program/`.

use std::{ffi::OsString, fs, time::Duration};

use super::*;
use crate::filter::{
    profile::KeyProfile,
    scaling::{OnFull, Scaling},
    spec::{Aging, Kind},
};

fn load(arguments: &[&str]) -> Result<Command, ConfigError> {
    let arguments = ["seenset-server"].iter().chain(arguments);
    Config::load(arguments.map(OsString::from), [])
}

fn config(arguments: &[&str]) -> Config {
    match load(arguments).unwrap() {
        Command::Run(config) => *config,
        other => panic!("{other:?}"),
    }
}

fn with_file(text: &str, arguments: &[&str]) -> Result<Config, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    match load(&[&["--config", path], arguments].concat()) {
        Ok(Command::Run(config)) => Ok(*config),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn defaults_are_those_of_the_struct() {
    let expected = Config {
        false_positive_rate: Some(0.001),
        ..Config::default()
    };
    assert_eq!(config(&[]), expected);
}

#[test]
fn good_values() {
    let config = config(&[
        "--listen",
        "[::1]:0",
        "--data-dir",
        "/x",
        "--capacity",
        "5",
        "--false-positive-rate",
        "0.5",
        "--hash-count",
        "3",
        "--layout",
        "classic",
        "--hash-function",
        "xxh3-128",
        "--store-interval",
        "90",
        "--drain-timeout",
        "1m 30s",
        "--max-memory",
        "2GiB",
        "--log-segment-size",
        "2MiB",
        "--max-key-bytes",
        "1",
        "--max-batch-keys",
        "2",
        "--log-format",
        "json",
        "--log-filter",
        "warn,seenset_server=trace",
    ]);
    assert_eq!(texts(&config.listen), ["[::1]:0"]);
    assert_eq!(
        config.store_interval.nonzero(),
        Some(Duration::from_secs(90))
    );
    assert_eq!(config.drain_timeout.get(), Duration::from_secs(90));
    assert_eq!(config.max_memory.bytes(1), 2 << 30);
    assert_eq!(config.log_segment_size.bytes(), 2 << 20);
    assert_eq!(
        (config.layout, config.hash_count),
        (Layout::Classic, Some(3))
    );
    assert_eq!(config.log_format, LogFormat::Json);
}

fn texts(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}

#[test]
fn several_addresses_are_listened_on() {
    let all = ["127.0.0.1:1", "localhost:2", "unix:/run/seenset.sock"];
    let one_by_one = all.map(|address| ["--listen", address]).concat();
    assert_eq!(texts(&config(&one_by_one).listen), all);
    assert_eq!(texts(&config(&["--listen", &all.join(",")]).listen), all);
    let in_file = with_file(&format!("listen = {all:?}"), &[]).unwrap();
    assert_eq!(texts(&in_file.listen), all);
    // Flags replace the values in the file, and are not added to them.
    let over_file = with_file(&format!("listen = {all:?}"), &["--listen", all[1]]).unwrap();
    assert_eq!(texts(&over_file.listen), [all[1]]);
    let alone = format!("listen = {:?}\nmetrics_listen = {:?}", all[2], all[1]);
    let alone = with_file(&alone, &[]).unwrap();
    assert_eq!(texts(&alone.listen), [all[2]]);
    assert_eq!(texts(&alone.metrics_listen), [all[1]]);
    assert_eq!(config(&[]).metrics_listen, []);

    for (file, expected) in [
        ("listen = []", "it must have at least one address"),
        (
            "listen = [\"127.0.0.1:1\", \"a\"]",
            "\"a\": write 127.0.0.1:9090",
        ),
        ("listen = 9090", "an address in quotes, or a list of them"),
    ] {
        let error = with_file(file, &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    for listen in [&all[..], &all[..1]] {
        let listen = listen.join(",");
        let printed = load(&["--print-config", "--listen", &listen]).unwrap();
        let Command::Print(text) = printed else {
            panic!("nothing was printed");
        };
        assert_eq!(
            texts(&with_file(&text, &[]).unwrap().listen).join(","),
            listen
        );
    }
}

#[test]
fn bits_stand_in_for_a_rate() {
    let config = config(&["--bit-count", "8589934592", "--capacity", "500000000"]);
    assert_eq!(config.false_positive_rate, None);
    let spec = config.default_filter().unwrap().resolve().unwrap();
    assert_eq!(
        (spec.body.bit_count(), spec.capacity),
        (1 << 33, 500_000_000)
    );
}

#[test]
fn ages_are_put_together_of_their_options() {
    let kind = |config: &Config| config.default_filter().unwrap().kind;
    let ages = |days: u64, slices, refresh| {
        Kind::Aging(Aging {
            max_age: Duration::from_secs(days * 24 * 3600),
            slices,
            refresh,
        })
    };
    let short = ["--kind=aging", "--max-age=30days"];
    assert_eq!(kind(&config(&short)), ages(30, 8, false));
    let full = [&short[..], &["--slices=13", "--refresh"]].concat();
    assert_eq!(kind(&config(&full)), ages(30, 13, true));
    let file = "kind = \"aging\"\nmax_age = 86400\nslices = 2\nrefresh = true\n";
    let merged = with_file(file, &["--slices=3"]).unwrap();
    assert_eq!(kind(&merged), ages(1, 3, true));
    let printed = [&["--print-config"], &full[..]].concat();
    let Command::Print(text) = load(&printed).unwrap() else {
        panic!("nothing was printed");
    };
    assert_eq!(kind(&with_file(&text, &[]).unwrap()), ages(30, 13, true));
}

#[test]
fn what_is_done_when_full_is_put_together_of_its_options() {
    let kind = |config: &Config| config.default_filter().unwrap().kind;
    let grows = |growth, max_memory_bytes| {
        Kind::Scaling(OnFull::Scale(Scaling {
            growth,
            max_memory_bytes,
        }))
    };
    let short = ["--kind=scaling"];
    assert_eq!(kind(&config(&short)), grows(2, None));
    let full = [
        "--kind=scaling",
        "--growth=4",
        "--max-filter-memory=12GiB",
        "--on-full=scale",
    ];
    assert_eq!(kind(&config(&full)), grows(4, Some(12 << 30)));
    for (name, expected) in [("reject", OnFull::Reject), ("degrade", OnFull::Degrade)] {
        let flag = format!("--on-full={name}");
        let config = config(&["--kind=scaling", &flag]);
        assert_eq!(kind(&config), Kind::Scaling(expected));
    }
    let file =
        "kind = \"scaling\"\non_full = \"scale\"\ngrowth = 3\nmax_filter_memory = \"2GiB\"\n";
    let merged = with_file(file, &["--growth=5"]).unwrap();
    assert_eq!(kind(&merged), grows(5, Some(2 << 30)));
    let printed = [&["--print-config"], &full[..]].concat();
    let Command::Print(text) = load(&printed).unwrap() else {
        panic!("nothing was printed");
    };
    let read = with_file(&text, &[]).unwrap();
    assert_eq!(kind(&read), grows(4, Some(12 << 30)));
}

#[test]
fn a_profile_is_put_together_of_its_options() {
    let profile = |config: &Config| config.default_filter().unwrap().key_profile;
    assert_eq!(profile(&config(&[])), None);
    let plain = profile(&config(&["--key-profile", "url-v1"])).unwrap();
    assert_eq!(plain, KeyProfile::new("url-v1", false, &[]).unwrap());
    let names = ["utm_*", "sid", "a"].map(str::to_owned);
    let full = KeyProfile::new("url-v1", true, &names).unwrap();
    let flags = &[
        "--sort-query",
        "--drop-parameter=utm_*,sid",
        "--drop-parameter=a",
    ];
    let named = [&["--key-profile=url-v1"], &flags[..]].concat();
    assert_eq!(profile(&config(&named)).unwrap(), full);
    // From a file, where a flag takes the place of a whole list.
    let file = "key_profile = \"url-v1\"\nsort_query = true\ndrop_parameter = [\"x\"]\n";
    let merged = with_file(file, &["--sort-query=false"]).unwrap();
    let names = ["x".to_owned()];
    let expected = KeyProfile::new("url-v1", false, &names).unwrap();
    assert_eq!(profile(&merged).unwrap(), expected);
    assert_eq!(profile(&with_file(file, flags).unwrap()).unwrap(), full);
    // As it is printed.
    let printed = [&["--print-config"], &named[..]].concat();
    let Command::Print(text) = load(&printed).unwrap() else {
        panic!("nothing was printed");
    };
    assert_eq!(profile(&with_file(&text, &[]).unwrap()).unwrap(), full);
}

#[test]
fn bad_values_are_refused_in_one_line_that_names_them() {
    for (arguments, expected) in [
        (
            &["--listen", "nowhere"][..],
            "'nowhere' for '--listen <ADDRESS>': write 127.0.0.1:9090, [::]:9090 (all addresses)",
        ),
        (&["--capacity", "-1"], "'-1'"),
        (
            &["--capacity", "1e9"],
            "'1e9' for '--capacity <KEYS>': write a whole number in digits",
        ),
        (&["--capacity", "0"], "capacity is 0; it must be at least 1"),
        (
            &["--capacity", "18446744073709551615"],
            "capacity is 18446744073709551615; it must be at most",
        ),
        (
            &["--false-positive-rate", "0"],
            "false_positive_rate is 0; it must be above 0 and below 1",
        ),
        (
            &["--false-positive-rate", "1"],
            "false_positive_rate is 1; it must be above 0 and below 1",
        ),
        (
            &["--false-positive-rate", "NaN"],
            "false_positive_rate is NaN;",
        ),
        (
            &["--hash-count", "65"],
            "hash_count is 65; it must be 1 to 64",
        ),
        (
            &["--bit-count", "9999999999999999"],
            "bit_count is 9999999999999999; it must be 1 to",
        ),
        (
            &["--layout", "square"],
            "no layout named \"square\": use blocked, classic, guava",
        ),
        (
            &["--hash-function", "md5"],
            "no hash function named \"md5\"",
        ),
        (
            &["--key-profile", "url-v2"],
            "key_profile.name is \"url-v2\"; it must be \"url-v1\"",
        ),
        (&["--sort-query"], "key_profile.name is \"\"; it must be"),
        (&["--kind=aging"], "aging.max_age is 0ns; it must be 8s"),
        (
            &["--kind=aging", "--max-age=1h", "--slices=14"],
            "aging.slices is 14; it must be 1 to 13",
        ),
        (&["--refresh"], "and kind is scaling: make it aging"),
        (
            &["--kind=counting", "--max-age=1h"],
            "and kind is counting: make it aging",
        ),
        (
            &["--kind=scaling", "--refresh"],
            "and kind is scaling: make",
        ),
        (
            &["--kind=plain", "--on-full=reject"],
            "and kind is plain: make it scaling",
        ),
        (
            &["--bit-count=9999", "--growth=2"],
            "and kind is plain: make it scaling",
        ),
        (
            &["--kind=aging", "--max-age=1h", "--max-filter-memory=1GiB"],
            "and kind is aging: make it scaling",
        ),
        (
            &["--kind=scaling", "--on-full=fail"],
            "there is no policy named \"fail\": use scale, reject or degrade",
        ),
        (
            &["--kind=scaling", "--growth=17"],
            "scaling.growth is 17; it must be 2 to 16",
        ),
        (
            &["--kind=scaling", "--on-full=reject", "--growth=2"],
            "scaling.growth is 2 and scaling.on_full is reject, with which there is one layer",
        ),
        (
            &["--kind=scaling", "--max-filter-memory=1MiB"],
            "scaling.max_memory_bytes is 1048576; the first layer takes",
        ),
        (
            &["--kind=scaling", "--max-filter-memory=80%"],
            "write a size as 64MiB, 12GiB or a number of bytes",
        ),
        (
            &["--kind=scaling", "--bit-count=1024"],
            "bit_count and hash_count are those of each layer",
        ),
        (
            &["--layout=redisbloom"],
            "layout is redisbloom, which no new filter can have",
        ),
        (
            &["--layout=guava", "--hash-function=xxh3-128"],
            "a filter of the layout guava has murmur3-x64-128: leave hash_function out",
        ),
        (
            &["--kind=scaling", "--layout=classic"],
            "a filter of the kind scaling has the layout blocked",
        ),
        (
            &["--key-profile=url-v1", "--drop-parameter=a=b"],
            "key_profile.drop_parameters has \"a=b\"; each name must be",
        ),
        (
            &["--store-interval", "soon"],
            "write a duration as 90 (seconds), 500ms, 5min or 12h",
        ),
        (
            &["--drain-timeout", "99999999999"],
            "it must be at most 36500days",
        ),
        (
            &["--max-memory", "0"],
            "write a size as 64MiB, 12GiB or a number of bytes, or a share as 80%",
        ),
        (&["--max-memory", "101%"], "1% to 100%"),
        (
            &["--max-key-bytes", "0"],
            "max_key_bytes is 0; it must be 1 to 8388608",
        ),
        (
            &["--max-filters", "0"],
            "max_filters is 0; it must be 1 to 1000000",
        ),
        (
            &["--max-batch-keys", "0"],
            "max_batch_keys is 0; it must be 1 to",
        ),
        (
            &["--log-segment-size", "many"],
            "write a size as 64MiB, 12GiB or a number of bytes",
        ),
        (
            &["--log-segment-size", "1048575"],
            "log_segment_size is 1048575; it must be 1MiB to 1024MiB",
        ),
        (
            &["--log-segment-size", "2GiB"],
            "log_segment_size is 2048MiB; it must be 1MiB to 1024MiB",
        ),
        (
            &["--log-segment-size", "3MiB"],
            "log_segment_size is 3MiB; for batches of 100000 keys (max_batch_keys) it must be at \
             least",
        ),
        (&["--log-format", "xml"], "it must be text or json"),
        (
            &["--log-filter", "seenset=loud"],
            "log_filter is \"seenset=loud\"",
        ),
        (
            &["--log-filter", "inof"],
            "log_filter is \"inof\": \"inof\" is no level; use off, error,",
        ),
        (
            &["--data-dri", "x"],
            "'--data-dri' found: a similar argument exists: '--data-dir'",
        ),
        (
            &["--config", "/no/such/file"],
            "/no/such/file: cannot read the configuration file",
        ),
    ] {
        let message = load(arguments).expect_err(expected).to_string();
        assert!(
            message.contains(expected),
            "{message:?} does not say {expected:?}"
        );
        assert!(!message.contains('\n'), "{message:?} is more than one line");
    }
}

#[test]
fn a_segment_may_be_as_small_as_is_said() {
    for keys in ["30000", "1000000"] {
        let with = |size: &str| load(&["--max-batch-keys", keys, "--log-segment-size", size]);
        let message = with("1MiB").expect_err("too small").to_string();
        let needed = message.split_once("at least ").expect("a number").1;
        let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
        assert!(needed > 32 * keys.parse::<u64>().unwrap());
        with(&(needed - 1).to_string()).expect_err("too small");
        with(&needed.to_string()).unwrap();
    }
}

#[test]
fn a_file_is_read_and_flags_win_over_it() {
    let text = "capacity = 7\nstore_interval = \"2m\"\nlayout = \"classic\"\n";
    let config = with_file(text, &["--capacity", "9"]).unwrap();
    assert_eq!((config.capacity, config.layout), (9, Layout::Classic));
    assert_eq!(config.store_interval, Period::from_secs(120));
    assert_eq!(config.max_batch_keys, Config::default().max_batch_keys);
    // A flag wins even with the value that is the default.
    assert_eq!(
        with_file(text, &["--layout", "blocked"]).unwrap().layout,
        Layout::Blocked
    );
}

#[test]
fn a_number_in_a_file_needs_no_quotes() {
    let text = "store_interval = 90\nmax_memory = 1073741824\n";
    let config = with_file(text, &[]).unwrap();
    assert_eq!(config.store_interval, Period::from_secs(90));
    assert_eq!(config.max_memory, "1GiB".parse().unwrap());
}

#[test]
fn bad_files_are_refused_by_file_line_and_key() {
    for (text, expected) in [
        (
            "capacity = 7\ncapasity = 8\n",
            "line 2: unknown field `capasity`",
        ),
        ("capacity = \"x\"\n", "line 1: invalid type: string \"x\""),
        (
            "\n\nlayout = \"square\"\n",
            "line 3: \"square\": there is no layout",
        ),
        ("max_key_bytes = 0\n", "max_key_bytes is 0; it must be 1 to"),
        ("false_positive_rate = nan\n", "false_positive_rate is NaN;"),
        ("capacity = \n", "line 1:"),
    ] {
        let message = with_file(text, &[]).expect_err(expected);
        assert!(
            message.contains(expected),
            "{message:?} does not say {expected:?}"
        );
        assert!(
            message.starts_with('/') && !message.contains('\n'),
            "{message:?}"
        );
    }
}

#[test]
fn the_printed_configuration_reads_back_as_itself() {
    let Command::Print(text) = load(&["--print-config", "--capacity", "7"]).unwrap() else {
        panic!("nothing was printed");
    };
    let expected = Config {
        capacity: 7,
        false_positive_rate: Some(0.001),
        ..Config::default()
    };
    assert_eq!(with_file(&text, &[]).unwrap(), expected, "{text}");
}

#[test]
fn misspelt_variables_are_refused_and_those_of_others_are_not() {
    let load = |name: &str| Config::load([OsString::from("x")], [OsString::from(name)]);
    let message = load("SEENSET_CAPASITY").unwrap_err().to_string();
    assert!(message.contains("SEENSET_CAPASITY is unknown"), "{message}");
    for name in [
        "SEENSET_CAPACITY",
        "SEENSET_CONFIG",
        "SEENSET_SERVER",
        "SEENSET_FILTER",
        "SEENSET_OUTPUT",
        "SEENSET_TIMEOUT",
        "SEENSET_PORT_9090_TCP",
        "SEENSET_SERVICE_HOST",
        "HOME",
    ] {
        load(name).unwrap();
    }
}

/// A path does not have to be UTF-8, also if there is a configuration file.
#[test]
fn a_directory_may_have_any_name() {
    use std::os::unix::ffi::OsStringExt;
    let name = || OsString::from_vec(b"/\xff".to_vec());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "capacity = 5").unwrap();
    let arguments = [
        "seenset-server".into(),
        "--config".into(),
        file.path().into(),
    ];
    let given = ["--data-dir".into(), name()];
    match Config::load(arguments.into_iter().chain(given), []).unwrap() {
        Command::Run(config) => {
            assert_eq!((config.data_dir, config.capacity), (name().into(), 5));
        }
        other => panic!("{other:?}"),
    }
}

/// Arguments with line feeds, for instance from a file that ends with one.
#[test]
fn an_error_of_more_than_one_line_still_names_the_setting() {
    for (argument, named) in [
        ("--capacity=5\n", "--capacity"),
        ("--listen=a\n\nb", "--listen"),
        ("--lay\nout=classic", "--lay\\nout"),
    ] {
        let error = load(&[argument]).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn verify_takes_a_directory_and_no_settings() {
    let verify = |arguments: &[&str]| load(&[&["verify"], arguments].concat());
    let expected = |salvage| {
        Command::Verify(Verify {
            data_dir: "dir".into(),
            salvage,
        })
    };
    assert_eq!(verify(&["dir"]).unwrap(), expected(false));
    assert_eq!(verify(&["dir", "--salvage"]).unwrap(), expected(true));
    for (arguments, named) in [
        (vec!["verify"], "<DIR>"),
        (vec!["--salvage"], "--salvage"),
        (vec!["--capacity", "5", "verify", "dir"], "capacity"),
        (vec!["--print-config", "verify", "dir"], "print_config"),
        (vec!["verify", "dir", "--capacity", "5"], "--capacity"),
    ] {
        let error = load(&arguments).unwrap_err().to_string();
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}
