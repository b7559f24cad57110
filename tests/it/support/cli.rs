//! The program itself, as a shell sees it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pointsman::server::proto::gate_client::GateClient;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::router_client::RouterClient;
use tonic::transport::{Channel, Endpoint};

/// Long enough for a loaded machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with nothing of ours in its environment but a store that ends with it.
pub fn pointsman() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_pointsman")))
}

/// The same, started by a shell that runs `script`: the program is `$0`, its arguments follow.
pub fn pointsman_under(script: &str) -> Command {
    let mut command = clean(Command::new("sh"));
    command.args(["-c", script, env!("CARGO_BIN_EXE_pointsman")]);
    command
}

fn clean(mut command: Command) -> Command {
    for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("POINTSMAN_")) {
        command.env_remove(key);
    }
    command.env("POINTSMAN_STORE__PATH", ":memory:");
    // A test says itself when files are read.
    command.env("POINTSMAN_REGISTRY__WATCH", "false");
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

/// Runs to the end and returns exit code, standard output, standard error.
pub fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = pointsman().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Flags by which words alone decide: no encoder has to be loaded.
pub const WORDS_ALONE: [&str; 4] = ["--models", "does/not/exist", "--set", "embed.allow_lexical_only=true"];

/// `pointsman serve` on free ports; killed on drop.
pub struct Served {
    child: Child,
    errors: Option<thread::JoinHandle<String>>,
    pub grpc: String,
    pub http: String,
}

impl Served {
    /// Returns when both addresses are printed; `args` come after `serve`.
    pub fn start(args: &[&str]) -> Self {
        Self::of(Self::spawn(args))
    }

    /// Of a program whose outputs are piped.
    pub fn of(mut child: Child) -> Self {
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::sync_channel(2);
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut next = |prefix: &str| {
            let line = lines.recv_timeout(PATIENCE).map_err(|_| "no line").unwrap_or_else(|err| {
                let _ = child.kill();
                let mut errors = String::new();
                let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
                panic!("{err} `{prefix}…`; standard error:\n{errors}");
            });
            line.strip_prefix(prefix).unwrap_or_else(|| panic!("`{line}` does not begin with `{prefix}`")).to_owned()
        };
        let (grpc, http) = (next("grpc listening on "), next("http listening on "));
        // Read as it comes: a full pipe would stop the program.
        let mut stderr = child.stderr.take().unwrap();
        let errors = thread::spawn(move || {
            let mut errors = String::new();
            stderr.read_to_string(&mut errors).unwrap();
            errors
        });
        Self { child, errors: Some(errors), grpc, http }
    }

    /// Does not wait for anything.
    pub fn spawn(args: &[&str]) -> Child {
        let ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let mut command = pointsman();
        command.arg("serve").args(ports).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    pub fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap().connect_lazy()
    }

    pub fn router(&self) -> RouterClient<Channel> {
        RouterClient::new(self.channel())
    }

    pub fn gate(&self) -> GateClient<Channel> {
        GateClient::new(self.channel())
    }

    pub fn registry(&self) -> RegistryClient<Channel> {
        RegistryClient::new(self.channel())
    }

    /// Body of a path on the HTTP port.
    pub async fn http_get(&self, path: &str) -> String {
        reqwest::get(format!("http://{}{path}", self.http)).await.unwrap().text().await.unwrap()
    }

    /// Exit code and standard error.
    pub fn wait(mut self) -> (i32, String) {
        let code = wait(&mut self.child);
        (code, self.errors.take().unwrap().join().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `name` as `kill` knows it: TERM, INT, HUP.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Exit code, within the patience of a test.
pub fn wait(child: &mut Child) -> i32 {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    panic!("the program did not end");
}
