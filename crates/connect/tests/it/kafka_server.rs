//! A real Kafka broker of our own, in a temporary folder, on free loopback ports; and an ordinary client of it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::postgres_server::{free_port, spawn_for_life};

const PATIENCE: Duration = Duration::from_secs(120);
const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

#[derive(Clone)]
pub(crate) struct KafkaServer(Arc<Inner>);

struct Inner {
    jars: PathBuf,
    folder: TempDir,
    port: u16,
    process: Mutex<Option<Child>>,
    topics: AtomicU32,
}

impl KafkaServer {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// With more lines of its properties.
    pub(crate) fn start_with(properties: &str) -> Self {
        Self::start_on(None, properties, &[])
    }

    /// With more listeners such as `SASL_SSL://127.0.0.1:9093`, and more arguments for the tool that formats its folder.
    pub(crate) fn start_on(listeners: Option<&str>, properties: &str, format: &[&str]) -> Self {
        let folder =
            tempfile::Builder::new().prefix("telecine-kafka-").tempdir().expect("a temporary folder");
        let (port, controller) = (free_port(), free_port());
        let data = folder.path().join("data");
        let more = listeners.map(|listeners| format!(",{listeners}")).unwrap_or_default();
        let settings = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{more}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL\n\
             log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=3\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n{properties}\n",
            data.display()
        );
        std::fs::write(folder.path().join("server.properties"), settings).expect("a file can be written");
        let server = Self(Arc::new(Inner {
            jars: jars(),
            folder,
            port,
            process: Mutex::new(None),
            topics: AtomicU32::new(0),
        }));
        let properties = server.0.folder.path().join("server.properties");
        let properties = properties.to_str().expect("a path in UTF-8");
        let formatting = ["format", "-t", CLUSTER, "-c", properties];
        server.run_tool("kafka.tools.StorageTool", &[&formatting, format].concat());
        server.launch();
        server
    }

    /// Starts the broker's process on its folder, as after a crash. Waits until it answers.
    pub(crate) fn launch(&self) {
        let log = std::fs::File::create(self.0.folder.path().join("log")).expect("a log file");
        let mut command = self.java("kafka.Kafka", &[]);
        command.arg(self.0.folder.path().join("server.properties"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
        *self.0.process.lock().expect("no test panics here") = Some(spawn_for_life(command));
        let until = Instant::now() + PATIENCE;
        let client = self.consumer("look");
        while !client.fetch_metadata(None, Duration::from_secs(1)).is_ok_and(|it| !it.brokers().is_empty()) {
            assert!(Instant::now() < until, "Kafka did not come up: {}", self.log());
        }
    }

    /// It dies at once, as with the machine.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.0.process.lock().expect("no test panics here").take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The same, and what it wrote goes too: one that is kept for the whole process is never dropped.
    pub(crate) fn remove(&self) {
        self.kill();
        let _ = std::fs::remove_dir_all(self.0.folder.path());
    }

    /// It is asked to stop, as by an operator, and does.
    pub(crate) fn shut_down(&self) {
        if let Some(mut process) = self.0.process.lock().expect("no test panics here").take() {
            let _ = kill_process(Pid::from_child(&process), Signal::TERM);
            let _ = process.wait();
        }
    }

    /// Runs a program of Kafka's own, which must succeed.
    pub(crate) fn run_tool(&self, class: &str, arguments: &[&str]) {
        let done = self.java(class, arguments).output().expect("java runs");
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{class} {arguments:?}: {}", String::from_utf8_lossy(&said));
    }

    /// Its machine hangs: connections stay, and nobody answers any more.
    pub(crate) fn freeze(&self) {
        let process = self.0.process.lock().expect("no test panics here");
        let id = Pid::from_child(process.as_ref().expect("it runs"));
        kill_process(id, Signal::STOP).expect("it is there");
    }

    fn java(&self, class: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command
            .arg("-cp")
            .arg(self.0.jars.join("*"))
            .arg(class)
            .args(arguments)
            .current_dir(self.0.folder.path());
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.folder.path().join("log")).unwrap_or_default()
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.port)
    }

    /// Names that nobody else uses: of a request, a response and a dead-letter topic.
    pub(crate) fn new_names(&self) -> [String; 3] {
        let number = self.0.topics.fetch_add(1, Ordering::Relaxed);
        ["request", "response", "dead"].map(|name| format!("{name}-{number}"))
    }

    /// The same, as topics that are there.
    pub(crate) async fn new_topics(&self, partitions: i32) -> [String; 3] {
        let names = self.new_names();
        for name in &names {
            self.make_topic(name, partitions, &[]).await;
        }
        names
    }

    pub(crate) async fn make_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let made = admin.create_topics([&topic], &AdminOptions::new()).await.expect("the broker answers");
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        // Whoever asks next is to find it.
        let (client, until) = (self.consumer("look"), Instant::now() + PATIENCE);
        let is_there = || {
            let metadata = client.fetch_metadata(Some(name), Duration::from_secs(5)).ok()?;
            let topic = metadata.topics().first()?;
            let is_led = topic.partitions().iter().all(|partition| partition.leader() >= 0);
            (topic.error().is_none() && topic.partitions().len() == partitions as usize && is_led)
                .then_some(())
        };
        while is_there().is_none() {
            assert!(Instant::now() < until, "topic {name} never came");
        }
    }

    pub(crate) async fn delete_topic(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let deleted = admin.delete_topics(&[name], &AdminOptions::new()).await.expect("the broker answers");
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        let until = Instant::now() + PATIENCE;
        while self.has_topic(name) {
            assert!(Instant::now() < until, "topic {name} stays");
        }
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    pub(crate) fn consumer(&self, group: &str) -> BaseConsumer {
        self.client().set("group.id", group).set("enable.auto.commit", "false").create().expect("a consumer")
    }

    /// For a member of a group that is new.
    pub(crate) fn consumer_from_start(&self, group: &str) -> BaseConsumer {
        let mut config = self.client();
        config.set("group.id", group).set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        config.create().expect("a consumer")
    }

    /// Sends records, each acknowledged.
    pub(crate) fn produce(&self, topic: &str, records: impl IntoIterator<Item = Sent>) {
        self.produce_with(&[], topic, records);
    }

    /// The same, by a producer with properties of its own.
    pub(crate) fn produce_with(
        &self,
        properties: &[(&str, &str)],
        topic: &str,
        records: impl IntoIterator<Item = Sent>,
    ) {
        let mut config = self.client();
        config.set("linger.ms", "5");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().expect("a producer");
        for Sent { key, value, headers } in records {
            let mut record = BaseRecord::<[u8], [u8]>::to(topic).payload(&value);
            record.key = key.as_deref();
            let headers = headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header { key, value: Some(value) })
            });
            producer.send(record.headers(headers)).map_err(|(error, _)| error).expect("there is room");
        }
        producer.flush(PATIENCE).expect("the broker takes them");
    }

    /// Everything that is in a topic by now, partition by partition, in order.
    pub(crate) fn read_all(&self, topic: &str) -> Vec<OwnedMessage> {
        let consumer = self.consumer("read");
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("the broker answers");
        let partitions: Vec<i32> = metadata.topics()[0].partitions().iter().map(|it| it.id()).collect();
        let mut records = Vec::new();
        for partition in partitions {
            let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE).expect("an answer");
            if low == high {
                continue;
            }
            let mut from = TopicPartitionList::new();
            from.add_partition_offset(topic, partition, Offset::Offset(low)).expect("an offset");
            consumer.assign(&from).expect("a partition");
            loop {
                let record = consumer.poll(PATIENCE).expect("a record").expect("a record").detach();
                let is_last = record.offset() + 1 >= high;
                records.push(record);
                if is_last {
                    break;
                }
            }
        }
        records
    }

    /// The same, once there are so many.
    pub(crate) fn read(&self, topic: &str, count: usize) -> Vec<OwnedMessage> {
        let until = Instant::now() + PATIENCE;
        let consumer = self.consumer("read");
        loop {
            let there = self.count(topic);
            if there >= count as i64 {
                return self.read_all(topic);
            }
            assert!(Instant::now() < until, "{there} of {count} records in {topic}");
            // A moment: nothing tells of a record that is not read yet.
            let _ = consumer.poll(Duration::from_millis(50));
        }
    }

    /// How many are in a group, once they have agreed on who reads what.
    pub(crate) fn members(&self, group: &str) -> Option<usize> {
        let groups = self.consumer("look").fetch_group_list(Some(group), PATIENCE).expect("an answer");
        let group = groups.groups().first()?;
        (group.state() == "Stable").then(|| group.members().len())
    }

    pub(crate) fn has_topic(&self, topic: &str) -> bool {
        let metadata = self.consumer("look").fetch_metadata(Some(topic), PATIENCE).expect("an answer");
        metadata.topics().first().is_some_and(|found| found.error().is_none())
    }

    /// How many records there are in a topic.
    pub(crate) fn count(&self, topic: &str) -> i64 {
        let consumer = self.consumer("read");
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("the broker answers");
        let partitions = metadata.topics()[0].partitions().iter();
        partitions.map(|it| consumer.fetch_watermarks(topic, it.id(), PATIENCE).expect("an answer").1).sum()
    }

    /// What a group has committed of a topic: the sum over all partitions.
    pub(crate) fn committed(&self, group: &str, topic: &str) -> i64 {
        let consumer = self.consumer(group);
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("the broker answers");
        let mut partitions = TopicPartitionList::new();
        for partition in metadata.topics()[0].partitions() {
            partitions.add_partition(topic, partition.id());
        }
        let committed = consumer.committed_offsets(partitions, PATIENCE).expect("the group answers");
        let offsets = committed.elements().into_iter().map(|place| place.offset());
        offsets.map(|offset| if let Offset::Offset(next) = offset { next } else { 0 }).sum()
    }
}

/// A record to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Sent {
    pub(crate) fn new(value: impl ToString) -> Self {
        Self { value: value.to_string().into_bytes(), ..Self::default() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        Self { key: Some(key.as_bytes().to_vec()), ..self }
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.raw_header(name, value.as_bytes())
    }

    pub(crate) fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A header of a record, as text.
pub(crate) fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let found = record.headers()?.iter().find(|header| header.key == name)?;
    Some(String::from_utf8_lossy(found.value?).into_owned())
}

/// As `scripts/fetch-kafka` finds them, or gets them.
fn jars() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-kafka");
    let fetched = Command::new(script).output().expect("the script runs");
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    PathBuf::from(String::from_utf8_lossy(&fetched.stdout).trim())
}
