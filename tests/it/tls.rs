//! TLS on the gRPC port: who is served over it, by what certificate, and how certificates are replaced.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman::config::{Settings, TlsSettings};
use pointsman::server::proto::ListRequest;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::router_client::RouterClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::support::RegistryFile;
use crate::support::cli::{Served, WORDS_ALONE, run};
use crate::support::server::{TestServer, ask, settings};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// Certificate and key, PEM.
    fn issue(&self, common_name: &str, names: &[&str], use_for: ExtendedKeyUsagePurpose) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![use_for];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn server(&self, folder: &Path) {
        let (cert, key) = self.issue("pointsman", &["localhost"], ExtendedKeyUsagePurpose::ServerAuth);
        std::fs::write(folder.join("server.pem"), cert).unwrap();
        std::fs::write(folder.join("server.key"), key).unwrap();
    }

    fn client(&self, common_name: &str) -> Identity {
        let (cert, key) = self.issue(common_name, &[], ExtendedKeyUsagePurpose::ClientAuth);
        Identity::from_pem(cert, key)
    }
}

struct Fixture {
    server: TestServer,
    folder: tempfile::TempDir,
    /// Kept for the file.
    _registry: RegistryFile,
}

impl Fixture {
    /// The server's certificate is of `authority`; clients are those of `clients`.
    async fn start(
        authority: &Authority,
        clients: Option<&Authority>,
        change: impl FnOnce(&mut Settings, &Path),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = RegistryFile::of(&["track_parcel"]);
        let mut settings = settings(&[&registry.path]);
        authority.server(folder.path());
        let path = |name: &str| folder.path().join(name);
        if let Some(clients) = clients {
            std::fs::write(path("clients.pem"), clients.pem()).unwrap();
        }
        settings.server.tls = Some(TlsSettings {
            cert: path("server.pem"),
            key: path("server.key"),
            client_ca: clients.map(|_| path("clients.pem")),
            require_client_cert: false,
        });
        change(&mut settings, folder.path());
        Self { server: TestServer::start(settings).await, folder, _registry: registry }
    }

    async fn channel(&self, trust: &Authority, identity: Option<Identity>) -> Result<Channel, tonic::transport::Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trust.pem())).domain_name("localhost");
        let tls = identity.into_iter().fold(tls, ClientTlsConfig::identity);
        let url = format!("https://{}", self.server.grpc);
        Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap().connect().await
    }

    async fn serves(&self, trust: &Authority) -> bool {
        let Ok(channel) = self.channel(trust, None).await else { return false };
        RouterClient::new(channel).route(ask("track my parcel")).await.is_ok()
    }
}

#[tokio::test]
async fn certificates_are_replaced_while_a_connection_stays_open() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let fixture = Fixture::start(&old, None, |_, _| ()).await;
    let open = fixture.channel(&old, None).await.unwrap();
    assert!(RouterClient::new(open.clone()).route(ask("track my parcel")).await.is_ok());
    assert!(!fixture.serves(&new).await, "a client that trusts another authority");

    // Half a file changes nothing, and the call that asked for it says so.
    std::fs::write(fixture.folder.path().join("server.key"), "half").unwrap();
    let refused =
        RegistryClient::new(open.clone()).reload(pointsman::server::proto::ReloadRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(fixture.serves(&old).await);

    new.server(fixture.folder.path());
    RegistryClient::new(open.clone()).reload(pointsman::server::proto::ReloadRequest {}).await.unwrap();
    assert!(fixture.serves(&new).await);
    assert!(!fixture.serves(&old).await);
    assert!(RouterClient::new(open).route(ask("track my parcel")).await.is_ok(), "the open connection goes on");
}

#[tokio::test]
async fn a_client_in_the_clear_is_turned_away_and_a_silent_one_holds_nobody_up() {
    let authority = Authority::new("ca");
    let fixture = Fixture::start(&authority, None, |_, _| ()).await;
    // Neither says anything, and neither is waited for.
    let silent = [
        TcpStream::connect(fixture.server.grpc).await.unwrap(),
        TcpStream::connect(fixture.server.grpc).await.unwrap(),
    ];
    let mut plain = TcpStream::connect(fixture.server.grpc).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await;
    // An alert and the end, or a reset; the handshake's own timeout is shorter than the patience, and an alert is there
    // only when it was not needed.
    assert!(ended.is_ok());
    assert!(!answer.is_empty() || ended.unwrap().is_err(), "the connection was left to time out");
    assert!(fixture.serves(&authority).await);
    drop(silent);
}

fn callers(settings: &mut Settings, folder: &Path) {
    let path: PathBuf = folder.join("callers.toml");
    let text = "[[callers]]\nname = \"bot\"\ntenant = \"acme\"\ncertificate = \"CN=客服 bot\"\n\
                [[callers]]\nname = \"root\"\ncertificate = \"CN=root\"\noperator = true\n";
    std::fs::write(&path, text).unwrap();
    settings.server.identity.callers = Some(path);
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    let (authority, stranger) = (Authority::new("ca"), Authority::new("stranger"));
    let fixture = Fixture::start(&authority, Some(&authority), callers).await;
    let route = async |identity: Option<Identity>| {
        let channel = fixture.channel(&authority, identity).await.map_err(|_| Code::Unknown)?;
        RouterClient::new(channel).route(ask("track my parcel")).await.map(drop).map_err(|status| status.code())
    };
    assert_eq!(route(Some(authority.client("客服 bot"))).await, Ok(()));
    assert_eq!(route(Some(authority.client("somebody"))).await, Err(Code::Unauthenticated));
    assert_eq!(route(None).await, Err(Code::Unauthenticated));
    // The right name, vouched for by nobody the server knows: no connection at all.
    assert!(!matches!(route(Some(stranger.client("客服 bot"))).await, Ok(()) | Err(Code::Unauthenticated)));
    let channel = fixture.channel(&authority, Some(authority.client("客服 bot"))).await.unwrap();
    let refused = RegistryClient::new(channel).reload(pointsman::server::proto::ReloadRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let channel = fixture.channel(&authority, Some(authority.client("root"))).await.unwrap();
    assert!(RegistryClient::new(channel).reload(pointsman::server::proto::ReloadRequest {}).await.is_ok());
}

#[tokio::test]
async fn a_client_without_a_certificate_is_turned_away_where_one_is_required() {
    let authority = Authority::new("ca");
    let require = |settings: &mut Settings, _: &Path| settings.server.tls.as_mut().unwrap().require_client_cert = true;
    let fixture = Fixture::start(&authority, Some(&authority), require).await;
    assert!(!fixture.serves(&authority).await);
    let channel = fixture.channel(&authority, Some(authority.client("any"))).await.unwrap();
    assert!(RegistryClient::new(channel).list(ListRequest::default()).await.is_ok());
}

#[test]
fn the_program_speaks_tls_and_reads_new_certificates_at_a_signal() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let registry = RegistryFile::of(&["track_parcel"]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    old.server(folder.path());
    std::fs::write(path("clients.pem"), old.pem()).unwrap();
    std::fs::write(path("old.pem"), old.pem()).unwrap();
    std::fs::write(path("new.pem"), new.pem()).unwrap();
    let (cert, key) = old.issue("客服 bot", &[], ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(path("bot.pem"), cert).unwrap();
    std::fs::write(path("bot.key"), key).unwrap();
    std::fs::write(path("callers.toml"), "[[callers]]\nname = \"bot\"\ncertificate = \"CN=客服 bot\"\n").unwrap();
    let sets = [
        ("tls.cert", "server.pem"),
        ("tls.key", "server.key"),
        ("tls.client_ca", "clients.pem"),
        ("identity.callers", "callers.toml"),
        ("audit.file", "audit.jsonl"),
    ]
    .map(|(key, file)| format!("{key}={}", path(file)));
    let registry = registry.path.display().to_string();
    let mut flags = vec!["--registry", &registry, "--set", "embed.encoders=[]"];
    flags.extend(WORDS_ALONE);
    flags.extend(sets.iter().flat_map(|set| ["--set", set.as_str()]));
    let served = Served::start(&flags);
    let port = served.grpc.rsplit_once(':').unwrap().1.to_owned();
    let route = |ca: &str, rest: &[&str]| {
        let (addr, ca) = (format!("https://localhost:{port}"), path(ca));
        run(&[&["route", "--addr", &addr, "--ca", &ca, "track my parcel"], rest].concat())
    };
    let (cert, key) = (path("bot.pem"), path("bot.key"));
    let own = ["--cert", cert.as_str(), "--key", key.as_str()];
    let (code, _, err) = route("old.pem", &own);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = route("old.pem", &[]);
    assert!(code == 2 && err.contains("--cert"), "{code} {err}");
    let (code, _, err) = route("new.pem", &own);
    assert!(code == 1 && err.contains("cannot reach"), "{code} {err}");
    let (code, _, err) = run(&["route", "--addr", &format!("http://localhost:{port}"), "--ca", &cert, "x"]);
    assert!(code == 2 && err.contains("https://"), "{code} {err}");

    new.server(folder.path());
    served.signal("HUP");
    let since = std::time::Instant::now();
    while route("new.pem", &own).0 != 0 {
        assert!(since.elapsed() < PATIENCE, "the new certificate was never shown");
    }
    served.signal("TERM");
    let (code, err) = served.wait();
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("certificates read again"), "{err}");
    assert!(!err.contains("in the clear"), "{err}");
}
