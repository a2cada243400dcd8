//! A real Kafka broker that lets in only whom it knows, over TLS, with certificates of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::kafka_server::KafkaServer;
use crate::postgres_server::free_port;

/// May do everything.
pub(crate) const USER: &str = "telecine";
/// May do nothing until it is allowed to.
pub(crate) const GUEST: &str = "guest";
/// Of both. In no message and no log.
pub(crate) const PASSWORD: &str = "open-sesame-4711";

pub(crate) struct GuardedKafka {
    /// Its plain listener is for the test alone.
    pub(crate) server: KafkaServer,
    port: u16,
    certificates: TempDir,
}

impl GuardedKafka {
    pub(crate) fn start() -> Self {
        let certificates = tempfile::tempdir().expect("a temporary folder");
        make_certificates(certificates.path());
        let port = free_port();
        let keys = certificates.path().join("broker.pem");
        let listener = "listener.name.sasl_ssl";
        let login = "org.apache.kafka.common.security";
        let properties = format!(
            "ssl.keystore.type=PEM\nssl.keystore.location={}\nsasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\n\
             {listener}.scram-sha-512.sasl.jaas.config={login}.scram.ScramLoginModule required;\n\
             {listener}.plain.sasl.jaas.config={login}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS;User:{USER}\n",
            keys.display()
        );
        let scram = [USER, GUEST].map(|user| format!("SCRAM-SHA-512=[name={user},password={PASSWORD}]"));
        let format = ["--add-scram", &scram[0], "--add-scram", &scram[1]];
        let server =
            KafkaServer::start_on(Some(&format!("SASL_SSL://127.0.0.1:{port}")), &properties, &format);
        Self { server, port, certificates }
    }

    /// Of the listener that asks for a name: `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The authority that signed the broker's certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.certificates.path().join("authority.pem")
    }

    /// One that signed nothing of the broker's.
    pub(crate) fn other_authority(&self) -> PathBuf {
        self.certificates.path().join("other.pem")
    }

    pub(crate) fn make_topics(&self, names: [&str; 3]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for name in names {
            runtime.block_on(self.server.make_topic(name, 1, &[]));
        }
    }

    /// As an administrator does it. The broker need not be started again.
    pub(crate) fn set_password(&self, user: &str, password: &str) {
        let scram = format!("SCRAM-SHA-512=[password={password}]");
        let address = self.server.address();
        let of_user = ["--entity-type", "users", "--entity-name", user];
        let change = ["--bootstrap-server", &address, "--alter", "--add-config", &scram];
        self.server.run_tool("kafka.admin.ConfigCommand", &[&change[..], &of_user].concat());
    }

    /// What docs/kafka.md says that a user needs.
    pub(crate) fn allow(&self, user: &str, [request, response, dead]: [&str; 3], group: &str) {
        let (address, user) = (self.server.address(), format!("User:{user}"));
        let add = ["--bootstrap-server", &address, "--add", "--allow-principal", &user];
        let reads = ["--consumer", "--topic", request, "--group", group];
        let writes = ["--producer", "--topic", response, "--topic", dead];
        for rights in [&reads[..], &writes] {
            self.server.run_tool("kafka.admin.AclCommand", &[&add, rights].concat());
        }
    }
}

/// `broker.pem` has the key and the certificate of the broker, which `authority.pem` has signed.
fn make_certificates(folder: &Path) {
    for name in ["authority", "other"] {
        openssl(folder, &["-subj", &format!("/CN={name}"), "-out", &format!("{name}.pem")], name);
    }
    let signed = ["-subj", "/CN=broker", "-CA", "authority.pem", "-CAkey", "authority.key"];
    let extensions =
        ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    openssl(folder, &[&signed[..], &extensions, &["-out", "broker.crt"]].concat(), "broker");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("openssl has written it");
    let both = read("broker.key") + &read("broker.crt");
    std::fs::write(folder.join("broker.pem"), both).expect("a file can be written");
}

fn openssl(folder: &Path, arguments: &[&str], key: &str) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-keyout", &format!("{key}.key")])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("openssl is installed (make setup)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
