//! A broker that asks for a name, over TLS: with what is right it works, and of what is wrong it is said which and what next.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clips;
use crate::guarded_kafka::{GUEST, GuardedKafka, PASSWORD, USER};
use crate::kafka::{body, until};
use crate::kafka_server::Sent;
use crate::serve::Serving;
use crate::telecine::{Ended, Place};

const WRONG_PASSWORD: &str = "not-the-one-0815";
const TOPICS: [&str; 3] = ["optimize-request", "optimize-response", "optimize-request.dead"];

/// How a process comes to a broker.
struct Way<'a> {
    brokers: String,
    user: &'a str,
    /// More of `[kafka]`.
    settings: String,
    properties: Vec<(&'a str, String)>,
}

impl<'a> Way<'a> {
    /// As it should be, but for the password.
    fn to(kafka: &GuardedKafka) -> Self {
        let authority = kafka.authority().display().to_string();
        let properties = vec![
            ("security.protocol", "SASL_SSL".into()),
            ("sasl.mechanism", "SCRAM-SHA-512".into()),
            ("ssl.ca.location", authority),
            // By default ten seconds.
            ("reconnect.backoff.max.ms", "1000".into()),
        ];
        Self { brokers: kafka.address(), user: USER, settings: String::new(), properties }
    }

    fn by(self, user: &'a str, password: &str) -> Self {
        Self { user, settings: format!("password = {password:?}"), ..self }
    }

    fn with(mut self, name: &'a str, value: impl ToString) -> Self {
        self.properties.retain(|(known, _)| *known != name);
        self.properties.push((name, value.to_string()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.properties.retain(|(known, _)| *known != name);
        self
    }

    fn configure(&self, place: &Place) {
        let properties = self.properties.iter().map(|(name, value)| format!("{name:?} = {value:?}\n"));
        let properties: String = properties.collect();
        place.write(
            "telecine.toml",
            &format!(
                "poll_ms = 200\nsweep_ms = 500\ninput_folders = [{:?}]\n\n[kafka]\nbrokers = {:?}\n\
                 create_topics = true\n{}\n\n[kafka.properties]\n{properties}\"sasl.username\" = {:?}\n",
                place.path(""),
                self.brokers,
                self.settings,
                self.user
            ),
        );
    }
}

/// Requests in and results out, and nothing else. What it says, it says to a file.
fn start_kafka(place: &Place, variables: &[(&str, &str)]) -> Child {
    let log = std::fs::File::create(place.path("log")).expect("a file can be made");
    let mut command = place.command(&["kafka", "--log", "debug"]);
    command.envs(variables.iter().copied()).stderr(log).stdout(Stdio::null());
    command.spawn().expect("the binary can be started")
}

fn checked<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let checks = doctor["checks"].as_array().expect("a list");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{doctor}"))
}

#[test]
fn requests_and_results_pass_over_tls_for_whoever_knows_the_password() {
    let kafka = GuardedKafka::start();
    let in_variable = [("TELECINE_KAFKA_PASSWORD", PASSWORD)];
    let ways = [("SCRAM-SHA-512", "scram", &[][..]), ("PLAIN", "plain", &in_variable[..])];

    for (mechanism, name, variables) in ways {
        let place = Place::new();
        let topics = TOPICS.map(|topic| format!("{name}-{topic}"));
        let mut settings = format!(
            "group = {name:?}\nrequest_topic = {:?}\nresponse_topic = {:?}\ndead_letter_topic = {:?}",
            topics[0], topics[1], topics[2]
        );
        if variables.is_empty() {
            place.write("password", &format!("{PASSWORD}\n"));
            settings += "\npassword_file = \"password\"";
        }
        Way { settings, ..Way::to(&kafka) }.with("sasl.mechanism", mechanism).configure(&place);
        clips::film(1, &place.path("film.mp4"));
        let mut worker = place.command(&["worker", "--log", "error"]);
        worker.env("TELECINE_SCRATCH", place.path("scratch"));
        let mut processes = [
            start_kafka(&place, variables),
            worker.stderr(Stdio::null()).spawn().expect("the binary can be started"),
        ];

        until("the topics are made", || topics.iter().all(|topic| kafka.server.has_topic(topic)));
        let request =
            json!({"recipe": "thumbnail", "input": {"path": place.path("film.mp4")}, "external_id": "m-1"});
        kafka.server.produce(&topics[0], [Sent::new(request), Sent::new("poison")]);
        let results = kafka.server.read(&topics[1], 1);
        let dead = kafka.server.read(&topics[2], 1);
        let mut asking = place.command(&["doctor", "--json"]);
        let doctor = Ended::from(asking.envs(variables.iter().copied()).output().expect("it runs"));
        let mut asking = place.command(&["config", "show", "--json"]);
        let shown = Ended::from(asking.envs(variables.iter().copied()).output().expect("it runs"));
        for process in &mut processes {
            kill_process(Pid::from_child(process), Signal::TERM).expect("it is there");
            assert_eq!(process.wait().expect("it ends").code(), Some(0));
        }

        assert_eq!(body(&results[0])["success"], true, "{mechanism}: {}", body(&results[0]));
        assert_eq!(dead.len(), 1);
        assert_eq!(kafka.server.committed(name, &topics[0]), 2);
        let found: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
        assert_eq!(checked(&found, "kafka")["state"], "ok", "{found}");
        assert!(shown.stdout.contains(mechanism) && shown.stdout.contains("authority.pem"), "{shown:?}");
        let log = std::fs::read_to_string(place.path("log")).expect("it has said something");
        assert!(log.contains("partitions are read by this process"), "{log}");
        for said in [&log, &doctor.stdout, &doctor.stderr, &shown.stdout, &shown.stderr] {
            assert!(!said.contains(PASSWORD), "{said}");
        }
    }
    kafka.server.kill();
}

#[test]
fn what_keeps_a_process_from_a_broker_is_told_with_the_next_step_and_without_the_secret() {
    let kafka = GuardedKafka::start();
    let way = || Way::to(&kafka).by(USER, PASSWORD);
    let plain_listener = Way { brokers: kafka.server.address(), ..way() };
    let password_file = Way { settings: "password_file = \"nonesuch\"".into(), ..way() };
    let password = ["do not let this user in", "TELECINE_KAFKA_PASSWORD"];
    let authority = ["no TLS with the brokers", "ssl.ca.location"];
    let listener = ["no broker answers", "security.protocol"];
    let cases = [
        ("a wrong password", way().by(USER, WRONG_PASSWORD), password),
        ("the same, in plain", way().by(USER, WRONG_PASSWORD).with("sasl.mechanism", "PLAIN"), password),
        ("a user that is not known", way().by("nobody", PASSWORD), password),
        ("another mechanism", way().with("sasl.mechanism", "SCRAM-SHA-256"), password),
        ("another authority", way().with("ssl.ca.location", kafka.other_authority().display()), authority),
        ("no authority", way().without("ssl.ca.location"), authority),
        (
            "no TLS where there should be",
            way().with("security.protocol", "PLAINTEXT"),
            ["closed by peer", "security.protocol"],
        ),
        ("TLS where there is none", plain_listener, listener),
        ("no rights", way().by(GUEST, PASSWORD), ["`optimize-request`", "kafka-acls.sh"]),
        (
            "a file that is not there",
            way().with("ssl.ca.location", "nonesuch.pem"),
            ["ssl.ca.location", "[kafka.properties]"],
        ),
        ("no file of the password", password_file, ["kafka_password_file", "telecine.toml:"]),
    ];
    kafka.make_topics(TOPICS);

    std::thread::scope(|scope| {
        for (name, way, expected) in &cases {
            scope.spawn(move || {
                let place = Place::new();
                way.configure(&place);

                let refused = place.run(&["kafka", "--log", "debug"]);
                let found = place.json_of(&["doctor"], 1);

                assert_eq!(refused.code, Some(2), "{name}: {refused:?}");
                let check = checked(&found, "kafka");
                assert_eq!(check["state"], "fail", "{name}: {check}");
                let advice = format!("{} {}", check["detail"], check["next"]);
                assert!(refused.stderr.contains("\nnext: "), "{name}: {refused:?}");
                for told in expected {
                    assert!(refused.stderr.contains(told), "{name}: {told}: {refused:?}");
                    assert!(advice.contains(told), "{name}: {told}: {check}");
                }
                for secret in [PASSWORD, WRONG_PASSWORD] {
                    assert!(!refused.stderr.contains(secret), "{name}: {refused:?}");
                    assert!(!found.to_string().contains(secret), "{name}: {found}");
                }
            });
        }
    });
    kafka.server.kill();
}

#[test]
fn an_api_waits_for_brokers_that_do_not_let_it_in_and_goes_on_when_they_do() {
    let (place, kafka) = (Place::new(), GuardedKafka::start());
    Way::to(&kafka).by(USER, WRONG_PASSWORD).configure(&place);
    let serve = Serving::start_with(&place, &["serve"], "info", &[]);
    let health = || {
        let (status, body) = serve.ask("GET", "/health/ready", None, None);
        (status, body["errors"][0]["message"].as_str().unwrap_or_default().to_owned())
    };
    let is_not_let_in = || health() == (503, "the brokers of Kafka do not take user and password".into());
    let mut poison = 0;
    let mut takes_requests = || {
        poison += 1;
        kafka.server.produce(TOPICS[0], [Sent::new("poison")]);
        until("it is taken in", || kafka.server.count(TOPICS[2]) == poison);
    };

    until("it says why it waits", is_not_let_in);
    assert_eq!(serve.ask("GET", "/v1/runs", None, None).0, 200, "the API is there all the same");
    kafka.set_password(USER, WRONG_PASSWORD);
    until("it is let in", || health().0 == 200);
    until("the topics are made", || TOPICS.iter().all(|topic| kafka.server.has_topic(topic)));
    takes_requests();

    // The same while it is at work.
    kafka.set_password(USER, PASSWORD);
    kafka.server.kill();
    kafka.server.launch();
    until("it is not let in any more", is_not_let_in);
    kafka.set_password(USER, WRONG_PASSWORD);
    until("it is let in again", || health().0 == 200);
    takes_requests();
    serve.signal(Signal::TERM);
    let (code, log) = serve.ends();

    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SASL authentication error"), "{log}");
    let warnings = log.lines().filter(|line| line.contains(" WARN "));
    assert!(warnings.count() < 100, "it does not talk without end: {log}");
    assert!(![PASSWORD, WRONG_PASSWORD].iter().any(|secret| log.contains(secret)), "{log}");
    kafka.server.kill();
}

#[test]
fn a_user_needs_the_rights_that_are_documented_and_no_others() {
    let (place, kafka) = (Place::new(), GuardedKafka::start());
    kafka.make_topics(TOPICS);
    Way::to(&kafka).by(GUEST, PASSWORD).configure(&place);
    let up = Serving::start(&place, &["up"]);
    let health = || up.ask("GET", "/health/ready", None, None);

    until("it waits for rights", || health().1.to_string().contains("may not be used"));
    kafka.allow(GUEST, TOPICS, "telecine");
    until("it has them", || health().0 == 200);
    place.write("no-film.txt", "no film");
    let request =
        json!({"recipe": "thumbnail", "input": {"path": place.path("no-film.txt")}, "external_id": "m-1"});
    kafka.server.produce(TOPICS[0], [Sent::new(request), Sent::new("poison")]);
    let results = kafka.server.read(TOPICS[1], 1);
    let dead = kafka.server.read(TOPICS[2], 1);

    assert_eq!(body(&results[0])["run"]["external_id"], "m-1");
    assert_eq!(dead.len(), 1);
    until("it is committed", || kafka.server.committed("telecine", TOPICS[0]) == 2);
    up.signal(Signal::TERM);
    assert_eq!(up.ends().0, Some(0));
    kafka.server.kill();
}
