use std::net::SocketAddr;
use std::time::Duration;

use super::*;

#[derive(Debug, Parser)]
#[command(name = "kasbah")]
struct Line {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    Up(Up),
    List {
        /// No setting: it has no variable.
        #[arg(long)]
        filter: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Up {
    #[arg(long, env = "KASBAH_TEST_CONSOLE_LISTEN", default_value = "127.0.0.1:8440")]
    console_listen: SocketAddr,
    #[arg(long, env = "KASBAH_TEST_DRAIN", default_value = "20s", value_parser = parse_duration)]
    drain: Duration,
    #[arg(long, env = "KASBAH_TEST_NAME")]
    name: String,
    #[arg(long, env = "KASBAH_TEST_PLAIN")]
    plain: bool,
    #[arg(long, env = "KASBAH_TEST_HOST", value_delimiter = ',')]
    host: Vec<String>,
}

fn parse(file: &str, line: &[&str]) -> Result<Line, Refused> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kasbah.toml");
    std::fs::write(&path, file).unwrap();
    let mut words = vec![OsString::from("kasbah"), OsString::from(format!("--config={}", path.display()))];
    words.extend(line.iter().map(OsString::from));
    parse_from(words, None)
}

fn up(file: &str, line: &[&str]) -> Up {
    match parse(file, line).unwrap().command {
        Sub::Up(up) => up,
        Sub::List { .. } => panic!("not up"),
    }
}

fn refused(file: &str, line: &[&str]) -> String {
    parse(file, line).unwrap_err().to_string()
}

#[test]
fn the_file_beats_defaults_and_the_command_line_beats_the_file() {
    let file = "name = \"file\"\ndrain = \"7s\"\nplain = true\nhost = [\"a\", \"b\"]\n[console]\nlisten = \"127.0.0.1:1\"\n";
    let from_file = up(file, &["up"]);
    assert_eq!(from_file.name, "file");
    assert_eq!(from_file.drain, Duration::from_secs(7));
    assert!(from_file.plain);
    assert_eq!(from_file.host, ["a", "b"]);
    assert_eq!(from_file.console_listen.port(), 1);
    let from_line =
        up(file, &["up", "--name", "line", "--host", "c", "--drain=1s", "--console-listen", "127.0.0.1:2"]);
    assert_eq!((from_line.name.as_str(), from_line.drain), ("line", Duration::from_secs(1)));
    assert_eq!(from_line.host, ["c"]);
    assert_eq!(from_line.console_listen.port(), 2);
    assert_eq!(up("[up]\nname = \"section\"\n", &["up"]).drain, Duration::from_secs(20));
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    let message = refused("console-lisen = \"127.0.0.1:1\"\n", &["up", "--name", "x"]);
    assert!(
        message.ends_with("there is no setting `console-lisen`; did you mean `console-listen`?"),
        "{message}"
    );
    let message = refused("[up]\nnmae = \"x\"\n", &["up"]);
    assert!(message.contains("`up.nmae`"), "{message}");
    assert!(refused("zzz = 1\n", &["up"]).ends_with("there is no setting `zzz`"));
    assert!(refused("filter = \"x\"\n", &["list"]).contains("there is no setting `filter`"));
}

#[test]
fn a_wrong_value_is_refused_with_the_name_of_its_setting_also_for_another_command() {
    for (file, wanted) in [
        (
            "console-listen = \"nowhere\"\n",
            "setting `console-listen`: invalid value 'nowhere': invalid socket address syntax",
        ),
        (
            "[console]\nlisten = 5\n",
            "setting `console.listen`: invalid value '5': invalid socket address syntax",
        ),
        ("drain = \"soon\"\n", "setting `drain`: invalid value 'soon': expected a duration such as"),
        ("plain = \"yes\"\n", "setting `plain`: expected true or false, found `\"yes\"`"),
        ("name = [\"a\"]\n", "setting `name`: expected one value, found a list"),
        ("[up]\ndrain = [1]\n", "setting `up.drain`: expected one value, found a list"),
    ] {
        for line in [&["up", "--name", "x"][..], &["list"]] {
            let message = refused(file, line);
            assert!(message.contains(wanted), "{message}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_or_not_toml_is_refused() {
    assert!(refused("name = \n", &["up"]).contains("is not TOML"));
    let missing = parse_from::<Line>(vec!["kasbah".into(), "up".into()], Some("/nowhere/kasbah.toml".into()));
    assert!(missing.unwrap_err().to_string().starts_with("cannot read /nowhere/kasbah.toml: "));
}

#[test]
fn the_command_lines_own_mistakes_name_the_option() {
    let message = refused("", &["up", "--name", "x", "--console-listen", "nowhere"]);
    assert!(message.contains("--console-listen"), "{message}");
    assert!(refused("", &["up"]).contains("--name"));
}

#[test]
fn help_shows_every_default() {
    let Err(Refused::Help(help)) = parse("", &["up", "--help"]) else { panic!("no help") };
    let help = help.to_string();
    for wanted in ["[default: 127.0.0.1:8440]", "[default: 20s]", "[env: KASBAH_TEST_NAME="] {
        assert!(help.contains(wanted), "{help}");
    }
}
